-- orphan_state: decides what happens to a report on an attempt that no dispatcher owns. Writes
-- nothing.
--
-- @arg job text
-- @arg attempt digits
-- @arg node_id text      the node that reports
-- Returns 'wanted' (the job's dispatcher, or a later one, may ask the node for the result),
--   'unwanted' (nobody will ask, or a result is kept), or 'unknown' (there is no record of the
--   attempt).
-- @include lib/job

local key = job_key(P, job)
local known = redis.call('HMGET', key, 'state', 'winner', attempt .. ':node', attempt .. ':state')
local state, winner, at, attempt_state = unpack(known, 1, 4)

if not state or not at then
  return 'unknown'
end
if at ~= node_id then
  return 'unwanted'
end
if state == 'done' and winner == attempt then
  -- The dispatcher had the result, and may have crashed with it.
  return redis.call('EXISTS', key .. ':result') == 1 and 'unwanted' or 'wanted'
end
-- A node may reconnect with an attempt that was released.
if JOB_OVER[state] or (ATTEMPT_OVER[attempt_state] and attempt_state ~= 'released') then
  return 'unwanted'
end
return 'wanted'
