-- compare_clock: compares the clock of the scripts with that of a caller, who notices so if it jumps.
--
-- Changes nothing.
--
-- @arg own_ms number    the time of the caller; it may count from anywhere
-- Returns how far the clock of the scripts is ahead of it, in ms.
-- @include lib/now

return now_ms() - math.floor(own_ms)
