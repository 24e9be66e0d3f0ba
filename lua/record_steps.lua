-- record_steps: writes where the time went into a job's record, where that exists.
--
-- KEYS 1 prefix
-- ARGV 1 job, 2 steps
-- Returns 1 where there is a record.
-- @include lib/job

local key = job_key(KEYS[1], ARGV[1])
local known = redis.call('EXISTS', key)
if known == 1 then
  redis.call('HSET', key, 'steps', ARGV[2])
end
return known
