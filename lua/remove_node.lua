-- remove_node: one step of removing a node. The first step excludes the node from selection, each
-- step takes it out of some pools, and the last step deletes it, or keeps it known if it may come
-- back.
--
-- The caller repeats the call until no pool remains. Guarantees that a node which has registered
-- again meanwhile is not touched.
--
-- @arg node_id text
-- @arg epoch number         0: any
-- @arg forget flag          delete the node; otherwise it stays known, in no pool
-- @arg silent_ms number     only if its last heartbeat is older than this; 0: in any case
-- @setting pools_per_step number
-- @setting pool_size number
-- Returns {'ok', 1 if the node existed, pools left in this step, pools that remain},
--   {'NODE_EPOCH_OLD'}, or {'alive'} if its heartbeat is not older than silent_ms.
-- @include lib/now
-- @include lib/codes
-- @include lib/live
-- @include lib/places
-- @include lib/owners

local node = live_get(P, node_id)
if not node then
  return { 'ok', 0, 0, 0 }
end
if epoch ~= 0 and epoch ~= node.epoch then
  return { 'NODE_EPOCH_OLD' }
end
if silent_ms > 0 and node.beat > now_ms() - silent_ms then
  return { 'alive' }
end

local mine = pools_key(P, node_id)
local some = redis.call('HRANDFIELD', mine, pools_per_step, 'WITHVALUES')
local names = {}
for i = 1, #some, 2 do
  pool_leave(P, some[i], node_id, some[i + 1], pool_size)
  names[#names + 1] = some[i]
end
if #names > 0 then
  redis.call('HDEL', mine, unpack(names))
end

local remain = redis.call('HLEN', mine)
local owner = remain == 0 and redis.call('HGET', P .. ':node:' .. node_id, 'node_owner')
if owner and owner ~= '' then
  owner_drop(P, owner, node_id)
end
if remain == 0 and forget then
  local key = P .. ':node:' .. node_id
  redis.call('DEL', key, mine, key .. ':reserved', key .. ':running')
  redis.call('HDEL', P .. ':nodes:live', node_id)
  redis.call('SREM', P .. ':nodes:all', node_id)
else
  node.health = remain == 0 and OUT or LEAVING
  live_put(P, node_id, node)
end
return { 'ok', 1, #names, remain }
