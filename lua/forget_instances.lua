-- forget_instances: checks some instances, and deletes those that have announced nothing for long.
--
-- @arg cursor text
-- @setting instances_per_step digits
-- @setting keep_ms number
-- Returns {next cursor, {ids that were deleted}}.
-- @include lib/now

local now = now_ms()
local page = redis.call('HSCAN', P .. ':instances', cursor, 'COUNT', instances_per_step)
local gone = {}
for i = 1, #page[2], 2 do
  local announced = tonumber(string.match(page[2][i + 1], '^%d+'))
  if not announced or now - announced > keep_ms then
    gone[#gone + 1] = page[2][i]
  end
end
if #gone > 0 then
  redis.call('HDEL', P .. ':instances', unpack(gone))
  redis.call('HDEL', P .. ':format:readers', unpack(gone))
end
return { page[1], gone }
