-- clear_session: deletes the bindings of a session in the given directions.
--
-- @arg tenant text
-- @arg session text
-- @each directions.src text
-- @each directions.tgt text
-- Returns how many bindings were deleted.
-- @include lib/now
-- @include lib/turn

local now = now_ms()
local cleared = 0
for i, src in ipairs(directions.src) do
  local key = turn_key(P, tenant, session, src, directions.tgt[i])
  if turn_read(key, now) then
    cleared = cleared + 1
  end
  redis.call('HDEL', key, 'timeout_node_id', 'timeout_until_ms', 'max_duration_node_id',
    'max_duration_until_ms', 'holds', 'id', 'cell')
end
return cleared
