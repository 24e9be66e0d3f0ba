-- join_room: adds a member to a room, moves it to this gateway, or changes what it listens to.
--
-- Guarantees that a room never has more members, speakers or languages than it may have, and that a
-- member counts once. A repeated call answers what the first did. A call that arrives after a later one
-- of the same gateway for this member changes nothing.
--
-- P:room:<id> and the keys below it: lib/room.lua
--
-- @arg room text
-- @arg member text
-- @arg role text               's': speaks, 'l': listens
-- @arg language text           that it speaks or listens to
-- @arg flags text              what a listener receives: letters of 'c' captions, 's' speech, 'o'
--                              original audio
-- @arg name text
-- @arg joined_ms number        0: now; a member that is there keeps its time
-- @arg change digits           rises with each call of this gateway, except for repeats
-- @arg rejoin flag             this gateway has the member: if it is at another one by now, it stays
--                              there; if it is here and as described, nothing happens
-- @setting gateway text
-- @setting lease_ms number
-- @setting idle_ms digits
-- Returns {'ok', room index from which on this applies, the highest open room index in the language
--   that it listened to before or -1}; or {'ROOM_NOT_FOUND'}, {'ROOM_CLOSED'}, {'MEMBER_MOVED'}
--   or {'ROOM_FULL', 'members' | 'speakers' | 'languages', limit}.
-- @include lib/room_members
-- @include lib/room_lanes

local now = now_ms()
local known = room_read(P, room)
local refusal = room_refusal(known)
if refusal then
  return { refusal }
end
members_settle(P, room, now, lease_ms, gateway)

local members = room_key(P, room, 'members')
local before = member_parse(redis.call('HGET', members, member))
local is_here = before and before.gateway == gateway
if before and not is_here and rejoin then
  return { 'MEMBER_MOVED' }
end
local is_same = is_here and before.role == role and before.language == language
  and before.flags == flags
if is_here and (tonumber(before.change) > tonumber(change) or
    is_same and (rejoin or before.change == change)) then
  return { 'ok', tonumber(before.from), tonumber(before.open) }
end

-- The limits are compared with what there is without this member, so it counts once.
local counts = wants_read(P, room)
if before then
  wants_count(counts, before, -1)
end
local speakers = counts['#speakers'] or 0
if speakers + (counts['#listeners'] or 0) >= known.max_members then
  return { 'ROOM_FULL', 'members', known.max_members }
end
if role == 's' and speakers >= known.max_speakers then
  return { 'ROOM_FULL', 'speakers', known.max_speakers }
end
if role == 'l' and (counts[language] or 0) == 0
    and #wants_languages(counts) >= known.max_languages then
  return { 'ROOM_FULL', 'languages', known.max_languages }
end

local open = -1
if before and before.role == 'l' and role == 'l' and before.language ~= language then
  local last = redis.call('ZRANGE', lane_key(P, room, before.language), -1, -1)[1]
  open = last and lane_parse(last) or -1
end
local joined = before and before.joined_ms or digits_of(joined_ms > 0 and joined_ms or now)
local record = { gateway = gateway, role = role, language = language, flags = flags,
  joined_ms = joined, change = change, from = digits_of(known.next), open = digits_of(open),
  name = name }
redis.call('HSET', members, member, member_pack(record))
if role == 's' then
  redis.call('ZADD', room_key(P, room, 'speakers'), joined, member)
elseif before and before.role == 's' then
  redis.call('ZREM', room_key(P, room, 'speakers'), member)
end
wants_count(counts, record, 1)
wants_write(P, room, counts)
redis.call('ZADD', room_key(P, room, 'gateways'), now + lease_ms, gateway)
room_renew(P, room, idle_ms)
room_list(P, known.tenant, { room }, idle_ms, now)
if not is_same or before.name ~= name then
  members_changed(P, room)
end
-- Only now, so that the gateway which had the last of its members moved away is told.
if before and counts['@' .. before.gateway] == 0 then
  redis.call('ZREM', room_key(P, room, 'gateways'), before.gateway)
end
return { 'ok', known.next, open }
