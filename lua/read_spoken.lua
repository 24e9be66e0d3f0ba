-- read_spoken: outcomes of one language of a room, in the order of their room indexes.
--
-- Changes nothing.
--
-- P:room:<id> and the keys below it: lib/room.lua
--
-- @arg room text
-- @arg language text
-- @arg start number            room indexes below this one are left out
-- @arg count digits            at most so many
-- @arg newest flag             the last ones, not the first
-- @arg with_speech flag        also read speech and original audio
-- Returns for each outcome: room index, previous room index in this language ('': none), entry ('':
--   missing, because no outcome came in time), speech, original audio ('': none, or no longer kept).
-- @include lib/room_lanes

local key, found = said_key(P, room, language), nil
if newest then
  found = redis.call('XREVRANGE', key, '+', said_id(start), 'COUNT', count)
else
  found = redis.call('XRANGE', key, said_id(start), '+', 'COUNT', count)
end
local answers = {}
for i = 1, #found do
  local id, fields = unpack(found[newest and #found + 1 - i or i])
  local index, audio = said_index(id), { false, false }
  if with_speech then
    audio = redis.call('MGET', speech_key(P, room, language, index), original_key(P, room, index))
  end
  for _, value in ipairs({ index, fields[4], fields[2], audio[1] or '', audio[2] or '' }) do
    answers[#answers + 1] = value
  end
end
return answers
