-- orphan_state: what becomes of a report on an attempt that no dispatcher answers for. Writes nothing.
--
-- KEYS 1 prefix
-- ARGV 1 job, 2 attempt, 3 node: who reports
-- Returns 'wanted' (whoever has the job, or takes it up, may ask the node), 'unwanted' (nobody will,
--   or a result is kept), or 'unknown' (there is no record of the attempt).
-- @include lib/job

local key, attempt, node = job_key(KEYS[1], ARGV[1]), ARGV[2], ARGV[3]
local known = redis.call('HMGET', key, 'state', 'winner', attempt .. ':node', attempt .. ':state')
local state, winner, at, attempt_state = unpack(known, 1, 4)

if not state or not at then
  return 'unknown'
end
if at ~= node then
  return 'unwanted'
end
if state == 'done' and winner == attempt then
  -- Its dispatcher had the result, and may have died with it.
  return redis.call('EXISTS', key .. ':result') == 1 and 'unwanted' or 'wanted'
end
-- A node may come back with an attempt that was released.
if JOB_OVER[state] or (ATTEMPT_OVER[attempt_state] and attempt_state ~= 'released') then
  return 'unwanted'
end
return 'wanted'
