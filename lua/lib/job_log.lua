-- The log of job changes: placements, ends of attempts and ends of jobs, for listing recent jobs.
--
-- P:jobs:log, stream: one entry per change, the oldest are trimmed. Its only field, 'c', has these parts,
--   separated by '|', which no id contains:
--   job id, state of the job after the change (job.lua), time of the change, attempt that was placed or
--   has ended, its node, how it ended ('': it was placed), latest attempt of the job, tenant, session,
--   utterance, src, tgt, reason (FinalizeReason), created_ms, why the job failed (ErrorReason), kind of
--   the result (JobResult.Kind). Parts that are not known are empty. services/dispatcher/job_log.py
--   reads them.
--
-- Ids of entries have the clock of Redis. The time of the change is a part of its own, because it equals
-- the times in the job's record.

-- Adds an entry; max: about how many are kept, 0: none. of: tenant, session, utterance, src, tgt, reason
-- and created_ms, as HMGET returns them from the job's record.
local function job_log(P, max, job, state, now, attempt, node, outcome, latest, of, error, kind)
  if max == '0' then return end
  for i = 1, 7 do
    of[i] = of[i] or ''
  end
  redis.call('XADD', P .. ':jobs:log', 'MAXLEN', '~', max, '*', 'c', table.concat({
    job, state, now, attempt, node, outcome, latest,
    table.concat(of, '|', 1, 7), error, kind }, '|'))
end
