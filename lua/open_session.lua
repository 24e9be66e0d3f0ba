-- open_session: writes the record of a new session, or of a live one that the store has lost.
--
-- Guarantees that a record of a later epoch or another owner is never written over. A repeat, also
-- with more cuts than the first call had, adds what is not there and takes nothing back. A tenant has
-- no more sessions than it may, however many gateways open some at once.
--
-- P:session:<id>, hash: lib/session.lua
-- P:tenant:<tenant>:sessions, sorted set: lib/quota.lua
--
-- KEYS 1 prefix
-- ARGV 1 session, 2 epoch (1: new; higher: it was lost), 3 token hash, 4 gateway, 5 tenant,
--   6 opened (a NewSession), 7 opened_ms (0: now), 8 next, 9 acked, 10 ttl_ms,
--   11 how many sessions the tenant may have (0: any number), then pairs of an index and its cut
-- Returns {'ok'}, {'SESSION_TAKEN_OVER'}, or {'QUOTA_EXCEEDED', 'sessions', used, 'limit', limit,
--   'retry_ms', ms}.
-- @include lib/session

local key = session_key(KEYS[1], ARGV[1])
local next_index, most = tonumber(ARGV[8]), tonumber(ARGV[11])
local known = redis.call('HMGET', key, 'epoch', 'token')
if known[1] and tonumber(known[1]) < tonumber(ARGV[2]) and known[2] == ARGV[3] then
  -- What a failover has left of the time before the last take-over.
  redis.call('DEL', key)
  known[1] = false
end
if not known[1] then
  local refused = most > 0
    and quota_full(KEYS[1], ARGV[5], 'sessions', most, SESSION_RETRY_MS, now_ms())
  if refused then
    return refused
  end
  local opened_ms, low = tonumber(ARGV[7]), next_index
  if opened_ms == 0 then
    opened_ms = now_ms()
  end
  for i = 12, #ARGV, 2 do
    low = math.min(low, tonumber(ARGV[i]))
  end
  redis.call('HSET', key, 'epoch', ARGV[2], 'token', ARGV[3], 'gateway', ARGV[4],
    'tenant', ARGV[5], 'opened', ARGV[6], 'opened_ms', opened_ms, 'last_chunk_ms', 0,
    'next', next_index, 'seen', 0, 'acked', 0, 'results', 0, 'missing', 0, 'low', low)
elseif tonumber(known[1]) ~= tonumber(ARGV[2]) or known[2] ~= ARGV[3] then
  return { 'SESSION_TAKEN_OVER' }
end
session_update(key, session_read(key), {}, next_index, 0, tonumber(ARGV[9]), 0, math.huge, 12)
session_renew(KEYS[1], ARGV[1], ARGV[5], ARGV[10])
return { 'ok' }
