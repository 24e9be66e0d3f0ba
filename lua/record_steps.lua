-- record_steps: adds the timings of a job to its record, if the record exists.
--
-- @arg job text
-- @arg steps text      JobSteps of the contract
-- Returns 1 if there is a record, otherwise 0.
-- @include lib/job

local key = job_key(P, job)
local known = redis.call('EXISTS', key)
if known == 1 then
  redis.call('HSET', key, 'steps', steps)
end
return known
