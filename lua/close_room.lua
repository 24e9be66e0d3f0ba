-- close_room: ends a room for good.
--
-- Guarantees that all gateways with members are told, and that no gateway can restore the room. A
-- repeated call changes nothing.
--
-- P:room:<id> and the keys below it: lib/room.lua
-- P:tenant:<tenant>:rooms, sorted set: lib/quota.lua
--
-- @arg room text
-- @setting idle_ms digits      for how long it is known that the room was closed
-- Returns {'ok', how many utterances it had} or {'ROOM_NOT_FOUND'}.

return {}
