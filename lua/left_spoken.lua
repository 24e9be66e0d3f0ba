-- left_spoken: which utterances have no outcome yet in a language.
--
-- Changes nothing.
--
-- P:room:<id> and the keys below it: lib/room.lua
--
-- @arg room text
-- @each wanted.index number    room index
-- @each wanted.language text
-- Returns {'ok', then for each, in order, 1 if put_spoken would accept an outcome, else 0},
--   {'ROOM_NOT_FOUND'} or {'ROOM_CLOSED'}.
-- @include lib/room_lanes

local refusal = room_refusal(room_read(P, room))
if refusal then
  return { refusal }
end
local answers, last = { 'ok' }, {}
for i, index in ipairs(wanted.index) do
  local language = wanted.language[i]
  last[language] = last[language] or said_last(P, room, language)
  local is_left = index > last[language]
    and redis.call('HEXISTS', waiting_key(P, room, language), digits_of(index)) == 0
  answers[#answers + 1] = is_left and 1 or 0
end
return answers
