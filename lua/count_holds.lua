-- count_holds: counts what a tenant has in this cell, for a limit that holds over all cells.
--
-- Changes nothing.
--
-- P:tenant:<tenant>:<what>, sorted set: lib/quota.lua
--
-- @arg tenant text
-- @arg what text    sessions or rooms
-- Returns how many have not expired.
-- @include lib/now
-- @include lib/quota

return quota_used(P, tenant, what, now_ms())
