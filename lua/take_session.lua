-- take_session: gives a session to the gateway that its client has connected to.
--
-- Guarantees that only the last gateway to take a session can change it, and that a caller without
-- the session's token, or of another tenant, cannot learn whether the session exists. A repeated call
-- raises the epoch again and returns the new one, which only fences off the caller's own first call.
-- A call that arrives late takes nothing from a later try of the same client.
--
-- P:session:<id>, hash, and P:sessions, sorted set: lib/session.lua
-- P:tenant:<tenant>:sessions, sorted set: lib/quota.lua
--
-- @arg session text
-- @arg token text         hash of the resume token
-- @arg tenant text        that the session must belong to; '': any
-- @arg tries number       how often the client has tried to resume; 0: unknown
-- @setting gateway text
-- @setting ttl_ms digits
-- Returns {'ok', epoch, opened, opened_ms, next, seen, results, missing, acked, then index and cut of
--   each cut that is kept, by rising index}, {'SESSION_NOT_FOUND'} or {'SESSION_TAKEN_OVER'}.
-- @include lib/session

local key = session_key(P, session)
local known = redis.call('HMGET', key, 'token', 'tenant', 'tries')
if known[1] ~= token or (tenant ~= '' and known[2] ~= tenant) then
  return { 'SESSION_NOT_FOUND' }
end
if tries > 0 and tries < (tonumber(known[3]) or 0) then
  return { 'SESSION_TAKEN_OVER' }
end
local epoch = redis.call('HINCRBY', key, 'epoch', 1)
redis.call('HSET', key, 'gateway', gateway, 'tries', tries)

local flat = redis.call('HGETALL', key)
local record, indexes = {}, {}
for i = 1, #flat, 2 do
  record[flat[i]] = flat[i + 1]
  local index = string.match(flat[i], '^cut:(%d+)$')
  if index then
    indexes[#indexes + 1] = tonumber(index)
  end
end
table.sort(indexes)
session_renew(P, session, record.tenant, ttl_ms)

local reply = { 'ok', epoch, record.opened }
for _, name in ipairs({ 'opened_ms', 'next', 'seen', 'results', 'missing', 'acked' }) do
  reply[#reply + 1] = tonumber(record[name])
end
for _, index in ipairs(indexes) do
  reply[#reply + 1] = index
  reply[#reply + 1] = record['cut:' .. index]
end
return reply
