-- The record of a job.
--
-- P:job:<id>, hash:
--   state       reserved, acked, retrying, done, failed, cancelled or unplaced
--               (unplaced: no node was found; the job starts again if it is submitted again)
--   attempt     number of the latest attempt; absent if no node has had the job
--   winner      number of the attempt that was committed first; absent if there is none
--   key, tenant, session, utterance, src, tgt, reason (FinalizeReason), home, created_ms, updated_ms
--   counted     the tenant whose quota of jobs it counts against (quota.lua); absent: none
--   error       why it failed or was cancelled (Error of the contract); absent: it has not failed
--   steps       its timeline (JobSteps of the contract); absent while it runs
--   <n>:node, <n>:state (reserved, running, released, done, failed, timed_out, cancelled),
--   <n>:path, <n>:reserved_ms, <n>:acked_ms, <n>:ended_ms, <n>:why    for each attempt
--   <n>:cell    the cell of its node, if that is not the cell of the job (take.lua)
--   <n>:turn    the turn that the attempt belongs to (turn.lua); absent: the job began the turn

local JOB_OVER = { done = true, failed = true, cancelled = true }
local ATTEMPT_OVER = { released = true, done = true, failed = true, timed_out = true, cancelled = true }

local function job_key(P, job)
  return P .. ':job:' .. job
end

local function lease_member(job, attempt)
  return job .. ':' .. attempt
end
