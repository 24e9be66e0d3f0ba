-- Lanes of a room: the utterances that are wanted in one language, and their outcomes in order.
--
-- P:room:<id>:lanes, set: languages that may have the keys below; expires after them
-- P:room:<id>:lane:<language>, sorted set: utterances whose outcome is not out, '<room index>:<when it is
--   due>:<when it was cut>' -> room index
-- P:room:<id>:waiting:<language>, hash: room index -> outcome that waits for an earlier one
-- P:room:<id>:said:<language>, stream: outcomes in the order of their room indexes. The id is '<room
--   index + 1>-0', because 0-0 is none. Fields: e, a RoomEvent ('': none came in time); p, the room
--   index of the previous outcome, or ''
-- P:room:<id>:speech:<language>:<room index>, string: translated speech
-- P:room:<id>:original:<room index>, string: what the speaker said
--
-- The first utterance of a lane never has an outcome that waits.
-- @include lib/room

-- Overdue utterances of one language that one call releases: an overload must not block Redis.
local EXPIRED_AT_ONCE = 100

local function lane_key(P, room, language)
  return room_key(P, room, 'lane:' .. language)
end

local function waiting_key(P, room, language)
  return room_key(P, room, 'waiting:' .. language)
end

local function said_key(P, room, language)
  return room_key(P, room, 'said:' .. language)
end

local function speech_key(P, room, language, index)
  return room_key(P, room, 'speech:' .. language .. ':' .. digits_of(index))
end

local function original_key(P, room, index)
  return room_key(P, room, 'original:' .. digits_of(index))
end

-- An entry of a lane, for its score.
local function lane_pack(index, due, cut)
  return digits_of(index) .. ':' .. digits_of(due) .. ':' .. digits_of(cut)
end

-- Room index of an entry of a lane, and when it is due.
local function lane_parse(packed)
  local index, due = string.match(packed, '^(%d+):(%d+):')
  return tonumber(index), tonumber(due)
end

-- Id of a stream's entry for a room index.
local function said_id(index)
  return digits_of(index + 1) .. '-0'
end

local function said_index(id)
  return tonumber(string.match(id, '^%d+')) - 1
end

-- Room index of the last outcome of a language; -1 if there is none.
local function said_last(P, room, language)
  local last = redis.call('XREVRANGE', said_key(P, room, language), '+', '-', 'COUNT', 1)[1]
  return last and said_index(last[1]) or -1
end

-- Keeps audio for so long.
local function audio_keep(P, room, language, index, speech, original, ms)
  if speech ~= '' then
    redis.call('SET', speech_key(P, room, language, index), speech, 'PX', ms)
  end
  if original ~= '' then
    redis.call('SET', original_key(P, room, index), original, 'PX', ms)
  end
end

-- Appends an outcome. last: from said_last, lower than index; it becomes the entry's `p`, so that
-- the chain has no break even if earlier entries are no longer kept.
local function said_add(P, room, language, index, entry, last, captions_max, idle_ms)
  local key = said_key(P, room, language)
  redis.call('XADD', key, 'MAXLEN', '=', captions_max, said_id(index), 'e', entry,
    'p', last >= 0 and digits_of(last) or '')
  if last < 0 then
    redis.call('PEXPIRE', key, idle_ms)
    redis.call('PEXPIRE', room_key(P, room, 'lanes'), idle_ms)
  end
end

-- Appends the outcomes that waited for the one before them. Returns the last room index.
--
-- first: the first entry of the lane, or nil
-- last: from said_last
local function lane_release(P, room, language, first, last, captions_max, speech_ms, idle_ms)
  local lane, waiting = lane_key(P, room, language), waiting_key(P, room, language)
  while first do
    local index = lane_parse(first)
    local entry = redis.call('HGET', waiting, digits_of(index))
    if not entry then
      return last
    end
    redis.call('HDEL', waiting, digits_of(index))
    redis.call('ZREM', lane, first)
    if index > last then
      said_add(P, room, language, index, entry, last, captions_max, idle_ms)
      redis.call('PEXPIRE', speech_key(P, room, language, index), speech_ms)
      redis.call('PEXPIRE', original_key(P, room, index), speech_ms)
      last = index
    end
    first = redis.call('ZRANGE', lane, 0, 0)[1]
  end
  return last
end

-- Makes utterances missing that are overdue and have none before them, and releases what waited for
-- them. An outcome that comes later is late.
local function lane_expire(P, room, language, now, captions_max, speech_ms, idle_ms)
  local lane, last = lane_key(P, room, language), nil
  for _ = 1, EXPIRED_AT_ONCE do
    local heads = redis.call('ZRANGE', lane, 0, 1)
    local index, due = lane_parse(heads[1] or '')
    if not index or due > now then
      break
    end
    last = last or said_last(P, room, language)
    redis.call('ZREM', lane, heads[1])
    if index > last then
      said_add(P, room, language, index, '', last, captions_max, idle_ms)
      last = index
    end
    last = lane_release(P, room, language, heads[2], last, captions_max, speech_ms, idle_ms)
  end
  if last then
    room_news(P, room, language)
  end
end

-- Renews the keys of all languages. Those of a language that nobody wants expire, except for its lane.
--
-- is_wanted: set of languages
-- Returns the languages that have a lane.
local function lanes_renew(P, room, is_wanted, idle_ms)
  local open = {}
  for _, language in ipairs(redis.call('SMEMBERS', room_key(P, room, 'lanes'))) do
    local has_lane = redis.call('PEXPIRE', lane_key(P, room, language), idle_ms) == 1
    local said = said_key(P, room, language)
    if has_lane then
      open[#open + 1] = language
      redis.call('PEXPIRE', waiting_key(P, room, language), idle_ms)
    end
    if has_lane or is_wanted[language] then
      redis.call('PEXPIRE', said, idle_ms)
    elseif redis.call('EXISTS', said) == 0 then
      redis.call('SREM', room_key(P, room, 'lanes'), language)
    end
  end
  return open
end

-- Deletes everything of all languages. Speech that is out expires soon by itself.
local function lanes_delete(P, room)
  for _, language in ipairs(redis.call('SMEMBERS', room_key(P, room, 'lanes'))) do
    for _, index in ipairs(redis.call('HKEYS', waiting_key(P, room, language))) do
      redis.call('DEL', speech_key(P, room, language, tonumber(index)),
        original_key(P, room, tonumber(index)))
    end
    redis.call('DEL', lane_key(P, room, language), waiting_key(P, room, language),
      said_key(P, room, language))
  end
  redis.call('DEL', room_key(P, room, 'lanes'))
end
