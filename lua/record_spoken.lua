-- record_spoken: as record_cuts, for a session that speaks to a room. Gives each cut that is new the
-- next room index, and enters it into the lanes of the languages that are wanted now.
--
-- Guarantees what record_cuts guarantees, and that a cut gets one room index: a repeated call, however
-- late, answers what the first did. If the session or the room refuses, nothing is changed.
--
-- P:session:<id>, hash: lib/session.lua
-- P:room:<id> and the keys below it: lib/room.lua
--
-- @arg session text
-- @arg epoch digits
-- @arg seen number
-- @arg results digits
-- @arg missing digits
-- @arg last_chunk_ms number    0: unchanged
-- @arg first number            cuts below this index are not needed
-- @arg acked number            chunks below this seq are safe
-- @arg room text
-- @arg src text                the language that is spoken
-- @arg floor number            the room index of the next utterance is at least this
-- @setting ttl_ms digits
-- @setting keep number         cuts at most
-- @setting due_ms number       after which an utterance without an outcome is missing
-- @setting lease_ms number
-- @setting idle_ms digits
-- @each cuts.index number      there may be none
-- @each cuts.cut text
-- @each cuts.only text         languages, with spaces between: enters it only into these; '': all
-- Returns {'ok', then for each cut, in order: room index, languages}. Languages are words like 'de' or,
--   if somebody wants speech, 'de+'; the word '*' says that somebody wants the original audio. A
--   late repeat of a cut that is no longer needed has the room index -1 and no languages.
--   Or {'SESSION_NOT_FOUND'}, {'SESSION_TAKEN_OVER'}, {'ROOM_NOT_FOUND'} or {'ROOM_CLOSED'}.
-- @include lib/session
-- @include lib/room_members
-- @include lib/room_lanes

local key = session_key(P, session)
local known = session_read(key)
local refusal = session_refusal(known, epoch)
if refusal then
  return { refusal }
end

-- What earlier calls answered for these cuts: lines '<room index> <languages>' by utterance index.
local said, is_new = session_said(key, known, cuts.index), false
for _, index in ipairs(cuts.index) do
  is_new = is_new or not said[index] and index >= tonumber(known[5])
end

-- Gives the cuts that are new their room indexes. wanted: from wants_read.
local function enter(following, wanted, now)
  local lanes, languages = {}, wants_languages(wanted)
  for i, index in ipairs(cuts.index) do
    if not said[index] and index >= tonumber(known[5]) then
      local words, is_in = {}, {}
      for language in string.gmatch(cuts.only[i], '%S+') do
        is_in[language] = true
      end
      for _, language in ipairs(languages) do
        if cuts.only[i] == '' or is_in[language] then
          words[#words + 1] = language .. (wanted[language .. '+'] and '+' or '')
          lanes[language] = lanes[language] or {}
          table.insert(lanes[language], following)
          table.insert(lanes[language], lane_pack(following, now + due_ms, now))
        end
      end
      -- Who listens in the speaker's own language and wants speech hears the speaker.
      if cuts.only[i] == '' and (wanted['*'] or wanted[src .. '+']) then
        words[#words + 1] = '*'
      end
      said[index] = digits_of(following) .. ' ' .. table.concat(words, ' ')
      following = following + 1
    end
  end
  return lanes, following
end

if is_new then
  local now, home = now_ms(), room_read(P, room)
  refusal = room_refusal(home)
  if refusal then
    return { refusal }
  end
  members_settle(P, room, now, lease_ms)
  local lanes, following = enter(math.max(home.next, floor), wants_read(P, room), now)
  local names = {}
  for language, entries in pairs(lanes) do
    names[#names + 1] = language
    call_many('ZADD', lane_key(P, room, language), entries)
    redis.call('PEXPIRE', lane_key(P, room, language), idle_ms)
  end
  if #names > 0 then
    call_many('SADD', room_key(P, room, 'lanes'), names)
    redis.call('PEXPIRE', room_key(P, room, 'lanes'), idle_ms)
  end
  room_raise_next(P, room, home, following)
end

local answers = { 'ok' }
for _, index in ipairs(cuts.index) do
  local room_index, languages = string.match(said[index] or '-1 ', '^(%S+) (.*)$')
  answers[#answers + 1] = tonumber(room_index)
  answers[#answers + 1] = languages
end
local fields = { 'room', room, 'results', results, 'missing', missing }
if last_chunk_ms > 0 then
  fields[#fields + 1] = 'last_chunk_ms'
  fields[#fields + 1] = last_chunk_ms
end
session_update(key, known, fields, 0, seen, acked, first, keep, cuts, said)
redis.call('PEXPIRE', key, ttl_ms)
return answers
