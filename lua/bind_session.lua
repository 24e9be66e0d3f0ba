-- bind_session: a node keeps audio of this session that the next job of this direction must join.
--
-- KEYS 1 prefix
-- ARGV 1 tenant, 2 session, 3 src, 4 tgt, 5 kind (timeout or max_duration), 6 node, 7 utterance,
--   8 binding_ttl_ms, 9 held_in_row_max (0: no limit), 10 job, 11 attempt. With a job, whose turn it is
--   comes from its record, and 1 to 4 and 7 are ignored.
-- Returns 'bound'; 'late' where a later utterance has been placed, the node is not known, or it was not
--   given that attempt; or 'limit' where as many pauses in a row have been held as may be. A repeat
--   counts no hold.
-- @include lib/now
-- @include lib/job
-- @include lib/live
-- @include lib/turn

local P = KEYS[1]
local now = now_ms()
local of, at, turn_id = { ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[7] }, ARGV[6], nil
local job, attempt = ARGV[10], ARGV[11]
if job ~= '' then
  of = redis.call('HMGET', job_key(P, job), 'tenant', 'session', 'src', 'tgt', 'utterance',
    attempt .. ':node', attempt .. ':turn')
  at, turn_id = of[6], of[7] or job
end
if at ~= ARGV[6] or not of[2] or of[2] == '' then
  return 'late'
end
local key = turn_key(P, of[1] or '', of[2], of[3], of[4])
local utterance = tonumber(of[5])
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
if turn_id then
  turn_name(key, turn_id)
end
return 'bound'
