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
-- @arg error digits            its ErrorReason, for the log
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
-- @setting job_log_max digits
-- Returns {'ended' | 'already' | 'superseded', job state}.
-- @include lib/now
-- @include lib/job
-- @include lib/quota
-- @include lib/job_log

-- Nodes of later attempts are not in the log of the job's end.
local LOGGED_ATTEMPTS = 8

local now = now_ms()
local record = job_key(P, job)
local fields = { 'state', 'home', 'error', 'counted', 'attempt', 'key', 'tenant', 'session',
  'utterance', 'src', 'tgt', 'reason', 'created_ms' }
local described_by = #fields
for number = 1, LOGGED_ATTEMPTS do
  fields[described_by + number] = number .. ':node'
end
local known = redis.call('HMGET', record, unpack(fields))
local state, answers, told, counted, latest, described = unpack(known, 1, 6)

if answers and answers ~= home then
  return { 'superseded', state or '' }
end
if state == 'done' or (JOB_OVER[state] and told) then
  return { 'already', state }
end
-- The end of the last attempt may have ended the job already, without a reason.
local was = state
if not JOB_OVER[state] then
  state = final
end
-- A job that no node can do ends so each time that it is submitted, which is one change.
local is_change = state ~= was or told ~= why
local of = { unpack(known, 7, 13) }
if not described then
  of = { tenant, session, utterance, src, tgt, reason, now }
  redis.call('HSET', record, 'key', key, 'tenant', tenant, 'home', home, 'session', session,
    'utterance', utterance, 'src', src, 'tgt', tgt, 'reason', reason, 'created_ms', now)
end
redis.call('HSET', record, 'state', state, 'error', why, 'steps', steps,
  unpack(is_change and { 'updated_ms', now } or {}))
redis.call('PEXPIRE', record, latest and job_record_ttl_ms or unplaced_record_ttl_ms)
if counted then
  quota_let_go(P, counted, 'jobs', job)
end
if is_change then
  local at = latest and known[described_by + tonumber(latest)] or ''
  job_log(P, job_log_max, job, state, now, latest or 0, at, '', latest or 0, of, error, '')
end
return { 'ended', state }
