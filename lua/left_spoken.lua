-- left_spoken: which utterances have no outcome yet in a language.
--
-- Changes nothing.
--
-- P:room:<id> and the keys below it: lib/room.lua
--
-- @arg room text
-- @each wanted.index number    room index
-- @each wanted.language text
-- Returns for each, in order, 1 if an outcome would be accepted, else 0.

return {}
