-- move_pools: one step of a node's way between pools: joins some, leaves some.
--
-- The caller splits a long way into steps, so that Redis is never blocked for long. Guarantees that
-- only the node's current connection moves it, and that a step can be repeated.
--
-- KEYS 1 prefix
-- ARGV 1 node, 2 epoch, 3 pool_size, 4 max_pools, 5 capability hash in the last step, else '',
--   6 count of pools to join, then their names, then the names of pools to leave
-- Returns {'ok'}, {'NODE_NOT_FOUND'} (also where it is on its way out: it must register again),
--   {'NODE_EPOCH_OLD'}, or {'POOL_FULL', name}.
-- @include lib/codes
-- @include lib/live
-- @include lib/places

local P, id, size, max_pools = KEYS[1], ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[4])
local node = live_get(P, id)
if not node then
  return { 'NODE_NOT_FOUND' }
end
if node.epoch ~= tonumber(ARGV[2]) then
  return { 'NODE_EPOCH_OLD' }
end
if node.health >= LEAVING then
  return { 'NODE_NOT_FOUND' }
end

local names = {}
for i = 7, #ARGV do
  names[#names + 1] = ARGV[i]
end
if #names > 0 then
  local joins = tonumber(ARGV[6])
  local mine = pools_key(P, id)
  local owner = redis.call('HGET', P .. ':node:' .. id, 'node_owner') or ''
  local places = redis.call('HMGET', mine, unpack(names))
  local joined, left = {}, {}
  for i, name in ipairs(names) do
    if i <= joins then
      local _, joined_as = place_read(places[i] or '0')
      if places[i] and joined_as ~= owner then
        -- It has come back with another owner, or without one.
        pool_leave(P, name, id, places[i], size)
        redis.call('HDEL', mine, name)
        places[i] = false
      end
      if not places[i] then
        local entries = tonumber(redis.call('HGET', P .. ':pools', name)) or 0
        if entries >= size * max_pools then
          if #joined > 0 then redis.call('HSET', mine, unpack(joined)) end
          return { 'POOL_FULL', name }
        end
        joined[#joined + 1] = name
        joined[#joined + 1] = pool_join(P, name, id, owner, size)
      end
    elseif places[i] then
      pool_leave(P, name, id, places[i], size)
      left[#left + 1] = name
    end
  end
  if #joined > 0 then
    redis.call('HSET', mine, unpack(joined))
  end
  if #left > 0 then
    redis.call('HDEL', mine, unpack(left))
  end
end
if ARGV[5] ~= '' then
  redis.call('HSET', P .. ':node:' .. id, 'pools_hash', ARGV[5])
end
return { 'ok' }
