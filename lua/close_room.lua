-- close_room: ends a room for good.
--
-- Guarantees that all gateways with members are told, and that no gateway can restore the room. A
-- repeated call changes nothing.
--
-- P:room:<id> and the keys below it: lib/room.lua
-- P:tenant:<tenant>:rooms, sorted set: lib/quota.lua
--
-- @arg room text
-- @setting idle_ms digits      for how long it is known that the room was closed
-- Returns {'ok', how many utterances it had} or {'ROOM_NOT_FOUND'}.
-- @include lib/room_lanes

local known = room_read(P, room)
if not known.is_there then
  return { 'ROOM_NOT_FOUND' }
end
if not known.closed then
  local key = room_key(P, room)
  -- Kept, so that only those who have a token of the room learn that it was closed.
  local secret = redis.call('HGET', key, 'secret')
  room_news(P, room)
  lanes_delete(P, room)
  redis.call('DEL', key)
  for _, part in ipairs({ 'gateways', 'members', 'speakers', 'wants' }) do
    redis.call('DEL', room_key(P, room, part))
  end
  redis.call('HSET', key, 'tenant', known.tenant, 'closed', 1, 'next', digits_of(known.next),
    'version', known.version + 1, 'secret', secret)
  redis.call('PEXPIRE', key, idle_ms)
  quota_let_go(P, known.tenant, 'rooms', room)
  redis.call('ZREM', rooms_key(P), room)
end
return { 'ok', known.next }
