-- The record of a room, and the keys below it.
--
-- P:room:<id>, hash:
--   tenant         the room is in the set of this tenant (quota.lua)
--   options        RoomOptions of the contract
--   secret         signs the tokens of the room, which are stored nowhere
--   created_ms
--   next           room index of the next utterance
--   max_members, max_speakers, max_languages
--   version        rises with each change of the members
--   closed         '1': the room was closed, and only tenant, secret, next and version are left
-- P:room:<id>:gateways, sorted set: gateway with members -> when its lease ends
-- P:room:<id>:members, :speakers, :wants    lib/room_members.lua
-- P:room:<id>:lanes, :lane:<language>, :waiting:<language>, :said:<language>,
--   :speech:<language>:<index>, :original:<index>    lib/room_lanes.lua
--
-- P:rooms, sorted set: room id -> when its record expires. The index for listing all rooms, as
--   P:sessions is for sessions.
-- P:news:<gateway>, Pub/Sub channel: '<room id> <language>' says that there are new outcomes, '<room id>'
--   that the members have changed or the room was closed. A message may be lost.
--
-- All keys of a room expire if no gateway has renewed them for idle_ms.
-- @include lib/now
-- @include lib/quota

-- When to try to create a room again: rooms end at any time.
local ROOM_RETRY_MS = 5000

-- part: what follows the id, or nil for the record.
local function room_key(P, room, part)
  return P .. ':room:' .. room .. (part and ':' .. part or '')
end

local function rooms_key(P)
  return P .. ':rooms'
end

-- Digits of a number of any size: Lua writes large ones with an exponent.
local function digits_of(number)
  return string.format('%.0f', number)
end

-- The fields that scripts need, by name. Without `is_there`, the room is gone.
local function room_read(P, room)
  local known = redis.call('HMGET', room_key(P, room), 'tenant', 'closed', 'next', 'version',
    'max_members', 'max_speakers', 'max_languages')
  return { is_there = known[1] and true, tenant = known[1], closed = known[2],
    next = tonumber(known[3]), version = tonumber(known[4]), max_members = tonumber(known[5]),
    max_speakers = tonumber(known[6]), max_languages = tonumber(known[7]) }
end

-- Why a room cannot be used, or nil. known: from room_read.
local function room_refusal(known)
  if not known.is_there then
    return 'ROOM_NOT_FOUND'
  end
  return known.closed and 'ROOM_CLOSED' or nil
end

-- Makes sure that the next utterance has at least this room index. known: from room_read.
local function room_raise_next(P, room, known, floor)
  if floor > known.next then
    known.next = floor
    redis.call('HSET', room_key(P, room), 'next', digits_of(floor))
  end
end

-- Renews the keys of a room, except for those of its languages.
local function room_renew(P, room, idle_ms)
  redis.call('PEXPIRE', room_key(P, room), idle_ms)
  for _, part in ipairs({ 'gateways', 'members', 'speakers', 'wants', 'lanes' }) do
    redis.call('PEXPIRE', room_key(P, room, part), idle_ms)
  end
end

-- Renews the entries of at most 500 rooms of one tenant in the sets of the tenant and of all rooms.
local function room_list(P, tenant, rooms, idle_ms, now)
  hold_drop_ended(quota_key(P, tenant, 'rooms'), now)
  quota_hold(P, tenant, 'rooms', rooms, tonumber(idle_ms), now)
  hold_drop_ended(rooms_key(P), now)
  hold_until(rooms_key(P), rooms, now + tonumber(idle_ms))
end

-- Wakes up all gateways with members. language: that has new outcomes, or nil.
local function room_news(P, room, language)
  local text = language and room .. ' ' .. language or room
  for _, gateway in ipairs(redis.call('ZRANGE', room_key(P, room, 'gateways'), 0, -1)) do
    redis.call('PUBLISH', P .. ':news:' .. gateway, text)
  end
end
