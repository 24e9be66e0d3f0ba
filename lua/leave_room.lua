-- leave_room: removes a member from a room.
--
-- Guarantees that a member which has joined again, here or at another gateway, stays. A repeated call
-- changes nothing.
--
-- P:room:<id> and the keys below it: lib/room.lua
--
-- @arg room text
-- @arg member text
-- @arg change number           as in join_room
-- @setting gateway text
-- Returns {'ok'}, also if there is no such member or room.

return {}
