-- move_pools: one step of moving a node between pools: joins some and leaves some.
--
-- The caller splits a large move into steps, so that Redis is never blocked for long. Guarantees that
-- only the node's current connection moves it, and that a step can be repeated.
--
-- @arg node_id text
-- @arg epoch number
-- @arg pools_hash text       hash of the capabilities in the last step, '' in all others
-- @setting pool_size number
-- @setting max_pools number
-- @arg join texts            names of pools
-- @each leave text           names of pools
-- Returns {'ok'}, {'NODE_NOT_FOUND'} (also if the node is being removed: it must register again),
--   {'NODE_EPOCH_OLD'}, or {'POOL_FULL', name}.
-- @include lib/codes
-- @include lib/live
-- @include lib/places

local node = live_get(P, node_id)
if not node then
  return { 'NODE_NOT_FOUND' }
end
if node.epoch ~= epoch then
  return { 'NODE_EPOCH_OLD' }
end
if node.health >= LEAVING then
  return { 'NODE_NOT_FOUND' }
end

local joins, names = #join, join
for i = 1, #leave do
  names[joins + i] = leave[i]
end
if #names > 0 then
  local mine = pools_key(P, node_id)
  local owner = redis.call('HGET', P .. ':node:' .. node_id, 'node_owner') or ''
  local places = redis.call('HMGET', mine, unpack(names))
  local joined, left = {}, {}
  for i, name in ipairs(names) do
    if i <= joins then
      local _, joined_as = place_read(places[i] or '0')
      if places[i] and joined_as ~= owner then
        -- The node has registered with another owner, or without one.
        pool_leave(P, name, node_id, places[i], pool_size)
        redis.call('HDEL', mine, name)
        places[i] = false
      end
      if not places[i] then
        local entries = tonumber(redis.call('HGET', P .. ':pools', name)) or 0
        if entries >= pool_size * max_pools then
          if #joined > 0 then redis.call('HSET', mine, unpack(joined)) end
          return { 'POOL_FULL', name }
        end
        joined[#joined + 1] = name
        joined[#joined + 1] = pool_join(P, name, node_id, owner, pool_size)
      end
    elseif places[i] then
      pool_leave(P, name, node_id, places[i], pool_size)
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
if pools_hash ~= '' then
  redis.call('HSET', P .. ':node:' .. node_id, 'pools_hash', pools_hash)
end
return { 'ok' }
