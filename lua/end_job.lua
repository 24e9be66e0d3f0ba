-- end_job: a job has ended without a result. Records how and why; creates the record of a job that
-- no node has had.
--
-- Guarantees that the first end of a job stays, and that a dispatcher ends no job that another one
-- has taken up. A job that ended as 'unplaced' is started again by a later allocate.
--
-- KEYS 1 prefix
-- ARGV 1 job, 2 home, 3 state (failed, cancelled or unplaced), 4 error, 5 steps,
--   6 job_record_ttl_ms, 7 unplaced_record_ttl_ms (of a job that no node has had), and for a new
--   record: 8 key, 9 tenant, 10 session, 11 utterance, 12 src, 13 tgt, 14 reason (FinalizeReason)
-- Returns {'ended' | 'already' | 'superseded', job state}.
-- @include lib/now
-- @include lib/job
-- @include lib/quota

local P, job, home = KEYS[1], ARGV[1], ARGV[2]
local now = now_ms()
local key = job_key(P, job)
local known = redis.call('HMGET', key, 'state', 'home', 'error', 'counted', 'attempt', 'key')
local state, answers, told, counted, latest, described = unpack(known, 1, 6)

if answers and answers ~= home then
  return { 'superseded', state or '' }
end
if state == 'done' or (JOB_OVER[state] and told) then
  return { 'already', state }
end
-- The end of the last attempt may have ended the job already, without saying why.
if not JOB_OVER[state] then
  state = ARGV[3]
end
if not described then
  redis.call('HSET', key, 'key', ARGV[8], 'tenant', ARGV[9], 'home', home, 'session', ARGV[10],
    'utterance', ARGV[11], 'src', ARGV[12], 'tgt', ARGV[13], 'reason', ARGV[14],
    'created_ms', now)
end
redis.call('HSET', key, 'state', state, 'error', ARGV[4], 'steps', ARGV[5], 'updated_ms', now)
redis.call('PEXPIRE', key, latest and ARGV[6] or ARGV[7])
if counted then
  quota_let_go(P, counted, 'jobs', job)
end
return { 'ended', state }
