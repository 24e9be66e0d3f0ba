-- leave_session: records that the client's stream has ended and the session waits to be resumed.
--
-- Guarantees that a late call of an earlier gateway does not take the session from its current one.
--
-- P:session:<id>, hash, and P:sessions, sorted set: lib/session.lua
-- P:tenant:<tenant>:sessions, sorted set: lib/quota.lua
--
-- @arg session text
-- @arg epoch digits
-- @arg seen number
-- @arg results digits
-- @arg missing digits
-- @arg last_chunk_ms number    0: unchanged
-- @setting ttl_ms digits
-- Returns {'ok'}, {'SESSION_NOT_FOUND'} or {'SESSION_TAKEN_OVER'}.
-- @include lib/session

local key = session_key(P, session)
local known = session_read(key)
local refusal = session_refusal(known, epoch)
if refusal then
  return { refusal }
end
local fields = { 'gateway', '', 'results', results, 'missing', missing }
if last_chunk_ms > 0 then
  fields[#fields + 1] = 'last_chunk_ms'
  fields[#fields + 1] = last_chunk_ms
end
session_update(key, known, fields, 0, seen, 0, 0, math.huge, { index = {} })
session_renew(P, session, known[2], ttl_ms)
return { 'ok' }
