-- leave_session: the client's stream has ended, and the session waits to be resumed.
--
-- Guarantees that a gateway which comes late leaves the session with whoever has taken it over.
--
-- P:session:<id>, hash: lib/session.lua
-- P:tenant:<tenant>:sessions, sorted set: lib/quota.lua
--
-- KEYS 1 prefix
-- ARGV 1 session, 2 epoch, 3 ttl_ms, 4 seen, 5 results, 6 missing, 7 last_chunk_ms (0: as it was)
-- Returns {'ok'}, {'SESSION_NOT_FOUND'} or {'SESSION_TAKEN_OVER'}.
-- @include lib/session

local key = session_key(KEYS[1], ARGV[1])
local known = session_read(key)
local refusal = session_refusal(known, ARGV[2])
if refusal then
  return { refusal }
end
local fields = { 'gateway', '', 'results', ARGV[5], 'missing', ARGV[6] }
if tonumber(ARGV[7]) > 0 then
  fields[#fields + 1] = 'last_chunk_ms'
  fields[#fields + 1] = ARGV[7]
end
session_update(key, known, fields, 0, tonumber(ARGV[4]), 0, 0, math.huge, #ARGV + 1)
session_renew(KEYS[1], ARGV[1], known[2], ARGV[3])
return { 'ok' }
