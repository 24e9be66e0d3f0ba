-- bind_session: a node keeps audio of this session that the next job of this direction must join.
--
-- KEYS 1 prefix
-- ARGV 1 tenant, 2 session, 3 src, 4 tgt, 5 kind (timeout or max_duration), 6 node, 7 utterance,
--   8 binding_ttl_ms, 9 held_in_row_max (0: no limit)
-- Returns 'bound'; 'late' where a later utterance has been placed or the node is not known; or
--   'limit' where as many pauses in a row have been held as may be. A repeat counts no hold.
-- @include lib/now
-- @include lib/live
-- @include lib/turn

local P = KEYS[1]
local now = now_ms()
local key = turn_key(P, ARGV[1], ARGV[2], ARGV[3], ARGV[4])
local utterance = tonumber(ARGV[7])
local bound, path, latest, written, holds = turn_read(key, now)
local node = live_get(P, ARGV[6])
if utterance < latest or not node or node.health >= LEAVING then
  return 'late'
end
local is_repeat = utterance == latest and bound == ARGV[6] and path == BY_TIMEOUT_BINDING
if ARGV[5] == 'timeout' and not is_repeat then
  holds = holds + 1
  local most = tonumber(ARGV[9])
  if most > 0 and holds > most then
    return 'limit'
  end
end
turn_write(key, written, ARGV[5], ARGV[6], utterance, holds, tonumber(ARGV[8]), now)
return 'bound'
