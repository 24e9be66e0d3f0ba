-- create_room: writes the record of a new room, or of a room that Redis has lost.
--
-- Guarantees that a room is never overwritten, that a closed room stays closed, and that a tenant
-- never has more rooms than its limit, here and as many as are elsewhere, however many gateways create
-- rooms at the same time. A repeated call changes nothing; one with a higher next_index raises that of
-- the room.
--
-- P:room:<id>, hash, and P:rooms, sorted set: lib/room.lua
-- P:tenant:<tenant>:rooms, sorted set: lib/quota.lua
--
-- @arg room text
-- @arg tenant text
-- @arg options text            RoomOptions of the contract
-- @arg secret text             signs the tokens of the room; proves that a repeat is one
-- @arg created_ms number       0: now
-- @arg next_index number       room index of the next utterance; higher than 0: the record was lost
-- @arg max_members digits
-- @arg max_speakers digits
-- @arg max_languages digits
-- @arg max_rooms number        of the tenant; 0: no limit
-- @arg elsewhere number        rooms of the tenant in other cells
-- @setting idle_ms digits
-- Returns {'ok', created_ms}; or {'ROOM_CLOSED'}, also if another room has this id; or
--   {'QUOTA_EXCEEDED', 'rooms', used, 'limit', limit, 'retry_ms', ms}.
-- @include lib/room_lanes

local key = room_key(P, room)
local known = redis.call('HMGET', key, 'tenant', 'closed', 'secret', 'created_ms')
if known[1] then
  if known[2] or known[3] ~= secret then
    return { 'ROOM_CLOSED' }
  end
  room_raise_next(P, room, room_read(P, room), next_index)
  return { 'ok', tonumber(known[4]) }
end
local now = now_ms()
local refused = max_rooms > 0
  and quota_full(P, tenant, 'rooms', max_rooms, ROOM_RETRY_MS, now, elsewhere)
if refused then
  return refused
end
if created_ms == 0 then
  created_ms = now
end
-- Outcomes that expire later than their room must not precede those of a restored one.
lanes_delete(P, room)
redis.call('HSET', key, 'tenant', tenant, 'options', options, 'secret', secret, 'created_ms',
  created_ms, 'next', digits_of(next_index), 'version', 0, 'max_members', max_members,
  'max_speakers', max_speakers, 'max_languages', max_languages)
redis.call('PEXPIRE', key, idle_ms)
room_list(P, tenant, { room }, idle_ms, now)
return { 'ok', created_ms }
