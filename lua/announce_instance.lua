-- announce_instance: says where an instance can be reached, for as long as it says so again.
--
-- P:instance:<id>, string: its address (host:port)
--
-- KEYS 1 prefix
-- ARGV 1 instance, 2 address, 3 how long in ms (0: it has gone)
-- Returns 1.

local key = KEYS[1] .. ':instance:' .. ARGV[1]
if ARGV[3] == '0' then
  redis.call('DEL', key)
else
  redis.call('SET', key, ARGV[2], 'PX', ARGV[3])
end
return 1
