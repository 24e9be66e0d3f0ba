-- count_cells: says how many cells were in use, which cells that are added later begin as new ones.
-- Called in the first cell, before anything else is written there.
--
-- P:cell, hash: what all instances know of the cell
--   state     what an operator wants with it (services/runtime/redis/cells/cells.py)
--   cells     in the first cell only: how many there are
--
-- @arg cells number         how many there are
-- Returns how many of them were in use: all, if none was.

local key = P .. ':cell'
local before = tonumber(redis.call('HGET', key, 'cells'))
if not before then
  -- A deployment with a single cell has a layout, and no count.
  before = redis.call('EXISTS', P .. ':layout') == 1 and 1 or cells
  redis.call('HSET', key, 'cells', before)
end
return before
