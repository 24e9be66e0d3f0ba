-- keep_result: keeps a result that found no gateway.
--
-- P:job:<id>:result, string: a JobResult of the contract
--
-- KEYS 1 prefix
-- ARGV 1 job, 2 result, 3 how long in ms
-- Returns 1.

redis.call('SET', KEYS[1] .. ':job:' .. ARGV[1] .. ':result', ARGV[2], 'PX', ARGV[3])
return 1
