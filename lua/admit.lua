-- admit: counts a job against the limits of its tenant, if the tenant is counted in another cell than
-- the job's own. Otherwise allocate does it.
--
-- Guarantees that a job which was admitted goes on: a repeated call is not refused, and charges nothing.
--
-- @arg job text
-- @arg tenant text
-- @arg max_jobs number              limits of the tenant; 0: none
-- @arg max_audio_ms number          per minute
-- @arg audio_ms number              speech of this job
-- @setting hold_ms number           how long a job counts as in flight without news of it
-- Returns {'ok'}, or {'QUOTA_EXCEEDED', 'jobs' or 'audio', used, 'limit', limit, 'retry_ms', ms}.
-- @include lib/now
-- @include lib/quota

local now = now_ms()
local held_until = tonumber(redis.call('ZSCORE', quota_key(P, tenant, 'jobs'), job))
if not held_until or held_until <= now then
  local ahead = max_audio_ms > 0 and quota_ahead(P, tenant, now)
  local refused = max_jobs > 0 and quota_full(P, tenant, 'jobs', max_jobs, JOB_RETRY_MS, now)
    or ahead and quota_mute(ahead, max_audio_ms)
  if refused then
    return refused
  end
  if ahead then
    quota_charge(P, tenant, ahead, audio_ms, max_audio_ms, now)
  end
end
quota_hold(P, tenant, 'jobs', { job }, hold_ms, now)
return { 'ok' }
