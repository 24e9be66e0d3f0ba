-- bind_session: a node keeps audio of this session that the next job of this direction must join.
--
-- KEYS 1 prefix
-- ARGV 1 session, 2 src, 3 tgt, 4 kind (timeout or max_duration), 5 node, 6 utterance,
--   7 binding_ttl_ms
-- Returns 1, or 0 where a later utterance has been placed or the node is not known.
-- @include lib/now
-- @include lib/live
-- @include lib/turn

local P = KEYS[1]
local now = now_ms()
local key = turn_key(P, ARGV[1], ARGV[2], ARGV[3])
local utterance = tonumber(ARGV[6])
local _, _, latest, written = turn_read(key, now)
local node = live_get(P, ARGV[5])
if utterance < latest or not node or node.health >= LEAVING then
  return 0
end
turn_write(key, written, ARGV[4], ARGV[5], utterance, tonumber(ARGV[7]), now)
return 1
