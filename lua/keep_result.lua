-- keep_result: keeps a result that found no gateway, or no home.
--
-- P:job:<id>:result, string: a JobResult of the contract
--
-- KEYS 1 prefix
-- ARGV 1 job, 2 result, 3 how long in ms, 4 node, 5 attempt
-- Node: who says that it has the result of that attempt. It must be the one that was given it, and
-- replaces nothing. Empty: the job's home says so, and knows best.
-- Returns 1 where it is kept.

local key = KEYS[1] .. ':job:' .. ARGV[1]
if ARGV[4] == '' then
  redis.call('SET', key .. ':result', ARGV[2], 'PX', ARGV[3])
  return 1
end
if redis.call('HGET', key, ARGV[5] .. ':node') ~= ARGV[4] then
  return 0
end
redis.call('SET', key .. ':result', ARGV[2], 'PX', ARGV[3], 'NX')
return 1
