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

return {}
