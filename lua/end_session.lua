-- end_session: forgets a session that has been closed.
--
-- Guarantees that a session which another gateway has taken over stays.
--
-- P:session:<id>, hash: lib/session.lua
--
-- KEYS 1 prefix
-- ARGV 1 session, 2 epoch
-- Returns {'ok'}, also where it is gone already, or {'SESSION_TAKEN_OVER'}.
-- @include lib/session

local key = session_key(KEYS[1], ARGV[1])
if session_refusal(key, ARGV[2]) == 'SESSION_TAKEN_OVER' then
  return { 'SESSION_TAKEN_OVER' }
end
redis.call('DEL', key)
return { 'ok' }
