-- record_cuts: records how utterances were cut, before their jobs are submitted, and how far the
-- client has got.
--
-- Guarantees that only the gateway that has the session writes, and that a cut is kept until that
-- gateway no longer needs it or `keep` later cuts exist. A repeated call, however late, restores no
-- cut and lowers neither the index, nor the count of results seen, nor the acknowledged seq.
--
-- P:session:<id>, hash: lib/session.lua
--
-- @arg session text
-- @arg epoch digits
-- @arg seen number
-- @arg results digits
-- @arg missing digits
-- @arg last_chunk_ms number    0: unchanged
-- @arg first number            cuts below this index are not needed
-- @arg acked number            chunks below this seq are safe
-- @setting ttl_ms digits
-- @setting keep number         cuts at most
-- @each cuts.index number      there may be none
-- @each cuts.cut text
-- Returns {'ok'}, {'SESSION_NOT_FOUND'} or {'SESSION_TAKEN_OVER'}.
-- @include lib/session

local key = session_key(P, session)
local known = session_read(key)
local refusal = session_refusal(known, epoch)
if refusal then
  return { refusal }
end
local fields = { 'results', results, 'missing', missing }
if last_chunk_ms > 0 then
  fields[#fields + 1] = 'last_chunk_ms'
  fields[#fields + 1] = last_chunk_ms
end
session_update(key, known, fields, 0, seen, acked, first, keep, cuts)
redis.call('PEXPIRE', key, ttl_ms)
return { 'ok' }
