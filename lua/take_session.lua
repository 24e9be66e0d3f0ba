-- take_session: gives a session to the gateway that its client has come to.
--
-- Guarantees that of all gateways only the last to take a session can change it, and that nobody
-- learns whether a session exists who does not have its token. A repeat raises the epoch once more
-- and answers the new one: the caller is then fenced off from nothing but its own first call.
--
-- P:session:<id>, hash: lib/session.lua
--
-- KEYS 1 prefix
-- ARGV 1 session, 2 token hash, 3 gateway, 4 ttl_ms
-- Returns {'ok', epoch, opened, opened_ms, next, seen, results, missing, acked, then index, cut of
--   each cut that is kept, in rising order}, or {'SESSION_NOT_FOUND'}.
-- @include lib/session

local key = session_key(KEYS[1], ARGV[1])
if redis.call('HGET', key, 'token') ~= ARGV[2] then
  return { 'SESSION_NOT_FOUND' }
end
local epoch = redis.call('HINCRBY', key, 'epoch', 1)
redis.call('HSET', key, 'gateway', ARGV[3])
redis.call('PEXPIRE', key, ARGV[4])

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

local reply = { 'ok', epoch, record.opened }
for _, name in ipairs({ 'opened_ms', 'next', 'seen', 'results', 'missing', 'acked' }) do
  reply[#reply + 1] = tonumber(record[name])
end
for _, index in ipairs(indexes) do
  reply[#reply + 1] = index
  reply[#reply + 1] = record['cut:' .. index]
end
return reply
