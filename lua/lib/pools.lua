-- Pools. A pool is named by its direction, "zh:en", or "text:zh:en" for jobs without speech, where
-- "text:zh:*" holds the nodes that translate into any language.
--
-- P:pools, hash: pool name -> how many nodes it has
-- P:pool:<name>:<shard>:nodes, set: at most `size` node ids
-- P:node:<id>:pools, hash: pool name -> shard
--
-- Invariant: every shard is full but the last. A node that leaves is replaced by one of the last
-- shard. So the number of nodes alone tells how many shards there are and how large each is, a
-- fair draw over them needs no scan, and a shard with room is always the last.

local function shard_key(P, name, shard)
  return P .. ':pool:' .. name .. ':' .. shard .. ':nodes'
end

local function pools_key(P, id)
  return P .. ':node:' .. id .. ':pools'
end

-- Adds the node to a pool that it is not in. Returns the shard.
local function pool_join(P, name, id, size)
  local count = redis.call('HINCRBY', P .. ':pools', name, 1)
  local shard = math.floor((count - 1) / size)
  redis.call('SADD', shard_key(P, name, shard), id)
  return shard
end

-- Takes the node out of the given shard of a pool, and fills the gap from the last shard.
local function pool_leave(P, name, id, shard, size)
  local left = redis.call('HINCRBY', P .. ':pools', name, -1)
  local last = math.floor(left / size)
  redis.call('SREM', shard_key(P, name, shard), id)
  if shard ~= last then
    local moved = redis.call('SPOP', shard_key(P, name, last))
    redis.call('SADD', shard_key(P, name, shard), moved)
    redis.call('HSET', pools_key(P, moved), name, shard)
  end
  if left == 0 then
    redis.call('HDEL', P .. ':pools', name)
  end
end
