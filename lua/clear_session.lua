-- clear_session: forgets the bindings of a session in the given directions.
--
-- KEYS 1 prefix
-- ARGV 1 tenant, 2 session, then src, tgt of each direction
-- Returns how many bindings there were.
-- @include lib/now
-- @include lib/turn

local P = KEYS[1]
local now = now_ms()
local cleared = 0
for i = 3, #ARGV, 2 do
  local key = turn_key(P, ARGV[1], ARGV[2], ARGV[i], ARGV[i + 1])
  if turn_read(key, now) then
    cleared = cleared + 1
  end
  redis.call('HDEL', key, 'timeout_node_id', 'timeout_until_ms', 'max_duration_node_id',
    'max_duration_until_ms', 'holds', 'id')
end
return cleared
