-- announce_instance: publishes the address of an instance for a limited time.
--
-- P:instance:<id>, string: its address (host:port)
--
-- @arg instance text
-- @arg address text
-- @arg ttl_ms digits      0: the instance has stopped, and its address is deleted
-- Returns 1.

local key = P .. ':instance:' .. instance
if ttl_ms == '0' then
  redis.call('DEL', key)
else
  redis.call('SET', key, address, 'PX', ttl_ms)
end
return 1
