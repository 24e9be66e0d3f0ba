-- open_session: writes the record of a new session, or of a live session whose record Redis has lost.
--
-- Guarantees that a record of a later epoch or another owner is never overwritten. A repeated call,
-- also one with more cuts than the first, adds what is missing and removes nothing. A tenant never
-- has more sessions than its limit, here and as many as are elsewhere, however many gateways open
-- sessions at the same time.
--
-- P:session:<id>, hash, and P:sessions, sorted set: lib/session.lua
-- P:tenant:<tenant>:sessions, sorted set: lib/quota.lua
--
-- @arg session text
-- @arg epoch digits             1: new; higher: the record was lost
-- @arg token text               hash of the resume token
-- @arg tenant text
-- @arg opened text              NewSession of the contract
-- @arg opened_ms number         0: now
-- @arg next_index number        index of the next utterance
-- @arg acked number             all chunks below this seq are safe
-- @arg max_sessions number      of the tenant; 0: no limit
-- @arg elsewhere number         sessions of the tenant in other cells
-- @setting gateway text
-- @setting ttl_ms digits
-- @each cuts.index number
-- @each cuts.cut text
-- Returns {'ok'}, {'SESSION_TAKEN_OVER'}, or {'QUOTA_EXCEEDED', 'sessions', used, 'limit', limit,
--   'retry_ms', ms}.
-- @include lib/session

local key = session_key(P, session)
local known = redis.call('HMGET', key, 'epoch', 'token')
if known[1] and tonumber(known[1]) < tonumber(epoch) and known[2] == token then
  -- A failover restored the record as it was before the last take-over.
  redis.call('DEL', key)
  known[1] = false
end
if not known[1] then
  local refused = max_sessions > 0
    and quota_full(P, tenant, 'sessions', max_sessions, SESSION_RETRY_MS, now_ms(), elsewhere)
  if refused then
    return refused
  end
  local low = next_index
  if opened_ms == 0 then
    opened_ms = now_ms()
  end
  for _, index in ipairs(cuts.index) do
    low = math.min(low, index)
  end
  redis.call('HSET', key, 'epoch', epoch, 'token', token, 'gateway', gateway,
    'tenant', tenant, 'opened', opened, 'opened_ms', opened_ms, 'last_chunk_ms', 0,
    'next', next_index, 'seen', 0, 'acked', 0, 'results', 0, 'missing', 0, 'low', low)
elseif tonumber(known[1]) ~= tonumber(epoch) or known[2] ~= token then
  return { 'SESSION_TAKEN_OVER' }
end
session_update(key, session_read(key), {}, next_index, 0, acked, 0, math.huge, cuts)
session_renew(P, session, tenant, ttl_ms)
return { 'ok' }
