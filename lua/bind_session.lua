-- bind_session: a node keeps audio of this session that the next job of this direction must join.
--
-- KEYS 1 prefix
-- ARGV 1 tenant, 2 session, 3 src, 4 tgt, 5 kind (timeout or max_duration), 6 node, 7 utterance,
--   8 binding_ttl_ms
-- Returns 1, or 0 where a later utterance has been placed or the node is not known.
-- @include lib/now
-- @include lib/live
-- @include lib/turn

local P = KEYS[1]
local now = now_ms()
local key = turn_key(P, ARGV[1], ARGV[2], ARGV[3], ARGV[4])
local utterance = tonumber(ARGV[7])
local _, _, latest, written = turn_read(key, now)
local node = live_get(P, ARGV[6])
if utterance < latest or not node or node.health >= LEAVING then
  return 0
end
turn_write(key, written, ARGV[5], ARGV[6], utterance, tonumber(ARGV[8]), now)
return 1
