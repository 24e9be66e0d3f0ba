-- record_cuts: writes down how utterances were cut, before their jobs are submitted, and how far
-- the client has got.
--
-- Guarantees that only the gateway which has the session writes, and that a cut stays until that
-- gateway says that nobody needs it or `keep` later ones are there. A repeat, however late, brings
-- no cut back and lowers neither the index, nor what was seen, nor what is safe.
--
-- P:session:<id>, hash: lib/session.lua
--
-- KEYS 1 prefix
-- ARGV 1 session, 2 epoch, 3 ttl_ms, 4 seen, 5 results, 6 missing, 7 last_chunk_ms (0: as it was),
--   8 first (cuts below this index are not needed), 9 acked (chunks below this seq are safe),
--   10 keep (cuts at most), then pairs of an index and its cut; there may be none
-- Returns {'ok'}, {'SESSION_NOT_FOUND'} or {'SESSION_TAKEN_OVER'}.
-- @include lib/session

local key = session_key(KEYS[1], ARGV[1])
local known = session_read(key)
local refusal = session_refusal(known, ARGV[2])
if refusal then
  return { refusal }
end
local fields = { 'results', ARGV[5], 'missing', ARGV[6] }
if tonumber(ARGV[7]) > 0 then
  fields[#fields + 1] = 'last_chunk_ms'
  fields[#fields + 1] = ARGV[7]
end
session_update(key, known, fields, 0, tonumber(ARGV[4]), tonumber(ARGV[9]),
  tonumber(ARGV[8]), tonumber(ARGV[10]), 11)
redis.call('PEXPIRE', key, ARGV[3])
return { 'ok' }
