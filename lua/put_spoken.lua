-- put_spoken: the outcome of an utterance in one language of its room.
--
-- Guarantees that the outcomes of a language come out once each, in the order of their room indexes: an
-- outcome waits until all earlier utterances of its language have one. The first outcome counts. A
-- repeated call changes nothing.
--
-- P:room:<id> and the keys below it: lib/room.lua
--
-- @arg room text
-- @arg language text
-- @arg index number            room index
-- @arg entry text              RoomEvent of the contract, without audio
-- @arg speech text             '': none
-- @arg original text           the speaker's audio; '': none, or another language has brought it
-- @setting captions_max digits
-- @setting speech_ms digits
-- @setting idle_ms digits
-- Returns 'published'; 'waiting' for an earlier utterance; 'late' if it had another outcome or is
--   not known; 'ROOM_NOT_FOUND' or 'ROOM_CLOSED'.
-- @include lib/room_lanes

local lane = lane_key(P, room, language)
local heads = redis.call('ZRANGE', lane, 0, 1)
local first = heads[1] and lane_parse(heads[1])

-- Appends the outcome. last: from said_last.
local function publish(last)
  audio_keep(P, room, language, index, speech, original, speech_ms)
  said_add(P, room, language, index, entry, last, captions_max, idle_ms)
end

if first == index then
  local last = said_last(P, room, language)
  local is_late = index <= last
  redis.call('ZREM', lane, heads[1])
  if not is_late then
    publish(last)
    last = index
  end
  lane_release(P, room, language, heads[2], last, captions_max, speech_ms, idle_ms)
  room_news(P, room, language)
  return is_late and 'late' or 'published'
end

local known = room_read(P, room)
local refusal = room_refusal(known)
if refusal then
  return refusal
end
local last = said_last(P, room, language)
if index <= last then
  local id = said_id(index)
  local found = redis.call('XRANGE', said_key(P, room, language), id, id)[1]
  return found and found[2][2] == entry and 'published' or 'late'
end

-- A failover may have lost that this utterance was cut: its outcome is as good as any other.
local is_lost = redis.call('ZCOUNT', lane, index, index) == 0
if is_lost then
  room_raise_next(P, room, known, index + 1)
  redis.call('SADD', room_key(P, room, 'lanes'), language)
end
if not first or first > index then
  publish(last)
  room_news(P, room, language)
  return 'published'
end

local waiting = waiting_key(P, room, language)
local before = redis.call('HGET', waiting, digits_of(index))
if before then
  return before == entry and 'waiting' or 'late'
end
if is_lost then
  local now = now_ms()
  redis.call('ZADD', lane, index, lane_pack(index, now, now))
end
redis.call('HSET', waiting, digits_of(index), entry)
for _, key in ipairs({ waiting, lane, room_key(P, room, 'lanes') }) do
  redis.call('PEXPIRE', key, idle_ms)
end
-- It is kept for long, because it may wait for long, and for speech_ms when it is released.
audio_keep(P, room, language, index, speech, original,
  math.max(tonumber(speech_ms), tonumber(idle_ms)))
return 'waiting'
