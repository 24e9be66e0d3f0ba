-- fetch_result: reads a result that was kept. It stays until its time is over.
--
-- KEYS 1 prefix
-- ARGV 1 job
-- Returns the result, or nothing.

return redis.call('GET', KEYS[1] .. ':job:' .. ARGV[1] .. ':result')
