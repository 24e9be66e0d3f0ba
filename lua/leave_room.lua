-- leave_room: removes a member from a room.
--
-- Guarantees that a member which has joined again, here or at another gateway, stays. A repeated call
-- changes nothing.
--
-- P:room:<id> and the keys below it: lib/room.lua
--
-- @arg room text
-- @arg member text
-- @arg change number           as in join_room
-- @setting gateway text
-- Returns {'ok'}, also if there is no such member or room.
-- @include lib/room_members

local members = room_key(P, room, 'members')
local before = member_parse(redis.call('HGET', members, member))
if not before or before.gateway ~= gateway or tonumber(before.change) > change then
  return { 'ok' }
end
local counts = wants_read(P, room)
wants_count(counts, before, -1)
redis.call('HDEL', members, member)
if before.role == 's' then
  redis.call('ZREM', room_key(P, room, 'speakers'), member)
end
wants_write(P, room, counts)
members_changed(P, room)
if counts['@' .. gateway] == 0 then
  redis.call('ZREM', room_key(P, room, 'gateways'), gateway)
end
return { 'ok' }
