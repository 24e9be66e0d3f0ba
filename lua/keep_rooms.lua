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

return {}
