-- remove_node: one step of a node's way out. The first step takes it out of selection; each step
-- takes it out of some pools; the last one forgets it, or, where it may come back, leaves it known.
--
-- The caller repeats the call until nothing is left. Guarantees that a node that has registered
-- anew meanwhile is not touched.
--
-- KEYS 1 prefix
-- ARGV 1 node, 2 epoch (0: whichever is current), 3 forget (0: it stays known, in no pool),
--   4 pools a step, 5 pool_size, 6 only where its last beat is older than this many ms (0: in any case)
-- Returns {'ok', existed, pools left by this step, pools that remain}, {'NODE_EPOCH_OLD'}, or
--   {'alive'} where ARGV 6 spared it.
-- @include lib/now
-- @include lib/codes
-- @include lib/live
-- @include lib/places
-- @include lib/owners

local P, id, epoch = KEYS[1], ARGV[1], tonumber(ARGV[2])
local older_than = tonumber(ARGV[6])
local node = live_get(P, id)
if not node then
  return { 'ok', 0, 0, 0 }
end
if epoch ~= 0 and epoch ~= node.epoch then
  return { 'NODE_EPOCH_OLD' }
end
if older_than > 0 and node.beat > now_ms() - older_than then
  return { 'alive' }
end

local mine = pools_key(P, id)
local some = redis.call('HRANDFIELD', mine, tonumber(ARGV[4]), 'WITHVALUES')
local names = {}
for i = 1, #some, 2 do
  pool_leave(P, some[i], id, some[i + 1], tonumber(ARGV[5]))
  names[#names + 1] = some[i]
end
if #names > 0 then
  redis.call('HDEL', mine, unpack(names))
end

local remain = redis.call('HLEN', mine)
local owner = remain == 0 and redis.call('HGET', P .. ':node:' .. id, 'node_owner')
if owner and owner ~= '' then
  owner_drop(P, owner, id)
end
if remain == 0 and ARGV[3] == '1' then
  local key = P .. ':node:' .. id
  redis.call('DEL', key, mine, key .. ':reserved', key .. ':running')
  redis.call('HDEL', P .. ':nodes:live', id)
  redis.call('SREM', P .. ':nodes:all', id)
else
  node.health = remain == 0 and OUT or LEAVING
  live_put(P, id, node)
end
return { 'ok', 1, #names, remain }
