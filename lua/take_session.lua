-- take_session: gives a session to the gateway that its client has come to.
--
-- Guarantees that of all gateways only the last to take a session can change it, and that nobody
-- learns whether a session exists who does not have its token, or is of another tenant. A repeat
-- raises the epoch once more and answers the new one: the caller is then fenced off from nothing but
-- its own first call. One that comes late takes nothing from a later try of the same client.
--
-- P:session:<id>, hash: lib/session.lua
-- P:tenant:<tenant>:sessions, sorted set: lib/quota.lua
--
-- KEYS 1 prefix
-- ARGV 1 session, 2 token hash, 3 gateway, 4 ttl_ms, 5 tenant that it must be of (absent or empty:
--   any), 6 how often the client has tried to resume (absent or 0: not told)
-- Returns {'ok', epoch, opened, opened_ms, next, seen, results, missing, acked, then index, cut of
--   each cut that is kept, in rising order}, {'SESSION_NOT_FOUND'} or {'SESSION_TAKEN_OVER'}.
-- @include lib/session

local key = session_key(KEYS[1], ARGV[1])
local known = redis.call('HMGET', key, 'token', 'tenant', 'tries')
local tries = tonumber(ARGV[6]) or 0
if known[1] ~= ARGV[2] or ((ARGV[5] or '') ~= '' and known[2] ~= ARGV[5]) then
  return { 'SESSION_NOT_FOUND' }
end
if tries > 0 and tries < (tonumber(known[3]) or 0) then
  return { 'SESSION_TAKEN_OVER' }
end
local epoch = redis.call('HINCRBY', key, 'epoch', 1)
redis.call('HSET', key, 'gateway', ARGV[3], 'tries', tries)

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
session_renew(KEYS[1], ARGV[1], record.tenant, ARGV[4])

local reply = { 'ok', epoch, record.opened }
for _, name in ipairs({ 'opened_ms', 'next', 'seen', 'results', 'missing', 'acked' }) do
  reply[#reply + 1] = tonumber(record[name])
end
for _, index in ipairs(indexes) do
  reply[#reply + 1] = index
  reply[#reply + 1] = record['cut:' .. index]
end
return reply
