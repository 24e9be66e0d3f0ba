-- keep_rooms: renews the leases of one gateway in its rooms, and the rooms themselves.
--
-- Guarantees that members of a gateway which is gone do not stay, and that an utterance whose speaker
-- is gone delays nobody for ever: with `expire`, those that are overdue get the outcome "missing".
--
-- P:room:<id> and the keys below it: lib/room.lua
-- P:tenant:<tenant>:rooms, sorted set: lib/quota.lua
--
-- @arg expire flag
-- @setting gateway text
-- @setting lease_ms number
-- @setting idle_ms digits
-- @setting captions_max digits
-- @setting speech_ms digits
-- @each rooms.id text          at most 100 rooms
-- @each rooms.floor number     the room index of the next utterance is at least this
-- Returns for each room, in order: 'ok', 'ROOM_NOT_FOUND' or 'ROOM_CLOSED'; room index of the next
--   utterance; version of the members; how many members this gateway has.
-- @include lib/room_members
-- @include lib/room_lanes

local now, answers, kept = now_ms(), {}, {}

-- Answers for one room.
local function answer(word, known, count)
  for _, value in ipairs({ word, known.next or 0, known.version or 0, count }) do
    answers[#answers + 1] = value
  end
end

-- Renews one room, unless this gateway has no members there: a room without members must end. Returns
-- how many it has. known: from room_read.
local function renew(room, known, floor)
  members_settle(P, room, now, lease_ms, gateway)
  room_raise_next(P, room, known, floor)
  local counts, is_wanted = wants_read(P, room), {}
  local here = counts['@' .. gateway] or 0
  if here == 0 then
    return here
  end
  for _, language in ipairs(wants_languages(counts)) do
    is_wanted[language] = true
  end
  redis.call('ZADD', room_key(P, room, 'gateways'), now + lease_ms, gateway)
  room_renew(P, room, idle_ms)
  local open = lanes_renew(P, room, is_wanted, idle_ms)
  for _, language in ipairs(expire and open or {}) do
    lane_expire(P, room, language, now, captions_max, speech_ms, idle_ms)
  end
  kept[known.tenant] = kept[known.tenant] or {}
  table.insert(kept[known.tenant], room)
  return here
end

for i, room in ipairs(rooms.id) do
  local known = room_read(P, room)
  local refusal = room_refusal(known)
  if refusal then
    answer(refusal, known, 0)
  else
    local here = renew(room, known, rooms.floor[i])
    known.version = tonumber(redis.call('HGET', room_key(P, room), 'version'))
    answer('ok', known, here)
  end
end
for tenant, ids in pairs(kept) do
  room_list(P, tenant, ids, idle_ms, now)
end
return answers
