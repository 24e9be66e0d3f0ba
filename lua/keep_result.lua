-- keep_result: keeps a result that found no gateway, or no home.
--
-- P:job:<id>:result, string: a JobResult of the contract
--
-- KEYS 1 prefix
-- ARGV 1 job, 2 result, 3 how long in ms, 4 over (1: also where another one is kept)
-- Returns 1.

local key = KEYS[1] .. ':job:' .. ARGV[1] .. ':result'
if ARGV[4] == '1' then
  redis.call('SET', key, ARGV[2], 'PX', ARGV[3])
else
  redis.call('SET', key, ARGV[2], 'PX', ARGV[3], 'NX')
end
return 1
