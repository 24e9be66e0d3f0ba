-- end_session: forgets a session that has been closed.
--
-- Guarantees that a session which another gateway has taken over stays, and that none which had it
-- before can write it again: what is left is a later epoch, without a token.
--
-- P:session:<id>, hash: lib/session.lua
-- P:tenant:<tenant>:sessions, sorted set: lib/quota.lua
--
-- KEYS 1 prefix
-- ARGV 1 session, 2 epoch, 3 ttl_ms
-- Returns {'ok'}, also where it is gone or has ended already, or {'SESSION_TAKEN_OVER'}.
-- @include lib/session

local key = session_key(KEYS[1], ARGV[1])
local epoch = tonumber(ARGV[2])
local known = redis.call('HMGET', key, 'epoch', 'token', 'tenant')
if known[1] and tonumber(known[1]) > epoch then
  return { known[2] and 'SESSION_TAKEN_OVER' or 'ok' }
end
redis.call('DEL', key)
if known[3] then
  quota_let_go(KEYS[1], known[3], 'sessions', ARGV[1])
end
redis.call('HSET', key, 'epoch', epoch + 1)
redis.call('PEXPIRE', key, ARGV[3])
return { 'ok' }
