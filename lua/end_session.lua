-- end_session: deletes a session that was closed.
--
-- Guarantees that a session which another gateway has taken over is kept, and that no earlier gateway
-- can write the record again: a record with a later epoch and no token is left behind.
--
-- P:session:<id>, hash, and P:sessions, sorted set: lib/session.lua
-- P:tenant:<tenant>:sessions, sorted set: lib/quota.lua
--
-- @arg session text
-- @arg epoch number
-- @setting ttl_ms digits
-- Returns {'ok'}, also if the session is gone already, or {'SESSION_TAKEN_OVER'}.
-- @include lib/session

local key = session_key(P, session)
local known = redis.call('HMGET', key, 'epoch', 'token', 'tenant')
if known[1] and tonumber(known[1]) > epoch then
  return { known[2] and 'SESSION_TAKEN_OVER' or 'ok' }
end
redis.call('DEL', key)
if known[3] then
  session_unlist(P, session, known[3])
end
redis.call('HSET', key, 'epoch', epoch + 1)
redis.call('PEXPIRE', key, ttl_ms)
return { 'ok' }
