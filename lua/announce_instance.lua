-- announce_instance: says that an instance runs, for a limited time.
--
-- P:instance:<id>, string: its address (host:port), for ttl_ms
-- P:instance:<id>:settings, string: a serialized Instance with nothing but its settings, for keep_ms
-- P:instances, hash: by id, "<time of the announcement> " and a serialized Instance without settings.
--   An instance that died stays there until forget_instances.
--
-- @arg instance text
-- @arg address text
-- @arg ttl_ms digits      0: the instance has stopped, and all of it is deleted
-- @arg keep_ms digits
-- @arg message text
-- @arg settings text      empty: as announced before
-- Returns 1, or 0 if Redis does not have the settings.
-- @include lib/now

local key = P .. ':instance:' .. instance
if ttl_ms == '0' then
  redis.call('DEL', key, key .. ':settings')
  redis.call('HDEL', P .. ':instances', instance)
  return 1
end
redis.call('SET', key, address, 'PX', ttl_ms)
redis.call('HSET', P .. ':instances', instance, string.format('%.0f ', now_ms()) .. message)
redis.call('PEXPIRE', P .. ':instances', keep_ms)
if settings == '' then
  return redis.call('PEXPIRE', key .. ':settings', keep_ms)
end
redis.call('SET', key .. ':settings', settings, 'PX', keep_ms)
return 1
