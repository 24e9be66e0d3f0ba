-- The tests' clock, in place of Redis' own. Tests move it; keys with a lifetime follow it.
--
-- P:test:now_ms, string: the time
-- P:test:expires, sorted set: key -> when it goes. Whoever moves the clock takes it away then.
local server_call = redis.call

local function now_ms()
  return tonumber(server_call('GET', KEYS[1] .. ':test:now_ms'))
end

local redis = { sha1hex = redis.sha1hex }
function redis.call(command, key, ...)
  if command == 'SET' and select(2, ...) == 'PX' then
    server_call('ZADD', KEYS[1] .. ':test:expires', now_ms() + select(3, ...), key)
    return server_call('SET', key, (...))
  end
  if command == 'PEXPIRE' then
    if server_call('EXISTS', key) == 0 then
      return 0
    end
    server_call('ZADD', KEYS[1] .. ':test:expires', now_ms() + ..., key)
    return 1
  end
  if command == 'DEL' then
    server_call('ZREM', KEYS[1] .. ':test:expires', key, ...)
  end
  return server_call(command, key, ...)
end
