-- end_job: records that a job has ended without a result, and why. Creates the record of a job that
-- no node has had.
--
-- Guarantees that the first end of a job is kept, and that a dispatcher cannot end a job that another
-- dispatcher has taken over. A job that ended as 'unplaced' is started again by a later allocate.
--
-- @arg job text
-- @arg home text
-- @arg final text              failed, cancelled or unplaced
-- @arg why text                Error of the contract
-- @arg steps text              JobSteps of the contract
-- @arg key text                this and the following are for a new record
-- @arg tenant text
-- @arg session text
-- @arg utterance digits
-- @arg src text
-- @arg tgt text
-- @arg reason digits           FinalizeReason
-- @setting job_record_ttl_ms digits
-- @setting unplaced_record_ttl_ms digits    of a job that no node has had
-- Returns {'ended' | 'already' | 'superseded', job state}.
-- @include lib/now
-- @include lib/job
-- @include lib/quota

local now = now_ms()
local record = job_key(P, job)
local known = redis.call('HMGET', record, 'state', 'home', 'error', 'counted', 'attempt', 'key')
local state, answers, told, counted, latest, described = unpack(known, 1, 6)

if answers and answers ~= home then
  return { 'superseded', state or '' }
end
if state == 'done' or (JOB_OVER[state] and told) then
  return { 'already', state }
end
-- The end of the last attempt may have ended the job already, without a reason.
if not JOB_OVER[state] then
  state = final
end
if not described then
  redis.call('HSET', record, 'key', key, 'tenant', tenant, 'home', home, 'session', session,
    'utterance', utterance, 'src', src, 'tgt', tgt, 'reason', reason, 'created_ms', now)
end
redis.call('HSET', record, 'state', state, 'error', why, 'steps', steps, 'updated_ms', now)
redis.call('PEXPIRE', record, latest and job_record_ttl_ms or unplaced_record_ttl_ms)
if counted then
  quota_let_go(P, counted, 'jobs', job)
end
return { 'ended', state }
