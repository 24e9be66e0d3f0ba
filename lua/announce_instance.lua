-- announce_instance: says that an instance runs, for a limited time, and that its release and the data fit.
--
-- Guarantees that data of a new format are written only if every running instance can read them, and
-- that no instance runs on data that it cannot read (services/runtime/redis/data_format.py).
--
-- P:instance:<id>, string: its address (host:port), for ttl_ms
-- P:instance:<id>:settings, string: a serialized Instance with nothing but its settings, for keep_ms
-- P:instances, hash: by id, "<time of the announcement> " and a serialized Instance without settings.
--   An instance that died stays there until forget_instances.
-- P:format, hash:
--   format         the newest format that data may have; it only rises
--   version        the release that was the first to write it
-- P:format:readers, hash: by id, "<newest format that the instance reads> <its release>". Without an
--   entry, an instance reads format 1.
--
-- @arg instance text
-- @arg address text
-- @arg ttl_ms digits      0: the instance has stopped, and all of it is deleted
-- @arg keep_ms digits
-- @arg message text
-- @arg settings text      empty: as announced before
-- @setting writes number
-- @setting reads_from number
-- @setting reads_to number
-- @setting version text
-- Returns 1, or 0 if Redis does not have the settings;
--   or {'unreadable', format, version}: the instance cannot read the data;
--   or {'unread', id, newest format, version}: another instance runs that cannot read what it writes.
-- @include lib/now

local key, readers = P .. ':instance:' .. instance, P .. ':format:readers'
if ttl_ms == '0' then
  redis.call('DEL', key, key .. ':settings')
  redis.call('HDEL', P .. ':instances', instance)
  redis.call('HDEL', readers, instance)
  return 1
end
local found = redis.call('HMGET', P .. ':format', 'format', 'version')
local format = tonumber(found[1]) or 0
if format > reads_to or (format > 0 and format < reads_from) then
  return { 'unreadable', format, found[2] or '' }
end
if writes > format then
  for _, other in ipairs(redis.call('HKEYS', P .. ':instances')) do
    local told = redis.call('HGET', readers, other)
    local reads, by = string.match(told or '1 ', '^(%d+) (.*)$')
    if other ~= instance and tonumber(reads) < writes and redis.call('EXISTS', P .. ':instance:' .. other) == 1 then
      return { 'unread', other, tonumber(reads), by }
    end
  end
  redis.call('HSET', P .. ':format', 'format', writes, 'version', version)
end
redis.call('HSET', readers, instance, string.format('%d ', reads_to) .. version)
redis.call('PEXPIRE', readers, keep_ms)
redis.call('SET', key, address, 'PX', ttl_ms)
redis.call('HSET', P .. ':instances', instance, string.format('%.0f ', now_ms()) .. message)
redis.call('PEXPIRE', P .. ':instances', keep_ms)
if settings == '' then
  return redis.call('PEXPIRE', key .. ':settings', keep_ms)
end
redis.call('SET', key .. ':settings', settings, 'PX', keep_ms)
return 1
