-- Joins and leaves pools (lib/pools.lua). Separate from lib/pools.lua because every function of an
-- included file costs a script some time, even if it is not called.
-- @include lib/pools

local function owner_pools_key(P, owner)
  return P .. ':owner:' .. owner .. ':pools'
end

-- The shard and the owner ('': none) of a node's place in a pool.
local function place_read(place)
  local shard, owner = string.match(place, '^(%d+)@?(.*)$')
  return tonumber(shard), owner
end

-- Adds an entry to a pool or group that does not contain it. Returns its shard, and the number of
-- entries.
local function entry_add(P, counts, name, entry, size)
  local count = redis.call('HINCRBY', P .. counts, name, 1)
  local shard = math.floor((count - 1) / size)
  redis.call('SADD', shard_key(P, name, shard), entry)
  return shard, count
end

-- Removes an entry from its shard, and fills the gap from the last shard. Returns the number of
-- entries left, and the entry that was moved, if any.
local function entry_remove(P, counts, name, entry, shard, size)
  local left = redis.call('HINCRBY', P .. counts, name, -1)
  local last = math.floor(left / size)
  redis.call('SREM', shard_key(P, name, shard), entry)
  local moved
  if shard ~= last then
    moved = redis.call('SPOP', shard_key(P, name, last))
    redis.call('SADD', shard_key(P, name, shard), moved)
  end
  if left == 0 then
    redis.call('HDEL', P .. counts, name)
  end
  return left, moved
end

-- Removes an entry from a pool, and records the new shard of the entry that replaced it.
local function pool_remove(P, name, entry, shard, size)
  local _, moved = entry_remove(P, ':pools', name, entry, shard, size)
  if not moved then return end
  local kind, key = string.byte(moved), nil
  if kind == OWNER then
    key = owner_pools_key(P, string.sub(moved, 2))
  elseif kind == ONLY_NODE then
    local _, owner = place_read(redis.call('HGET', pools_key(P, string.sub(moved, 2)), name))
    key = owner_pools_key(P, owner)
  else
    key = pools_key(P, moved)
  end
  redis.call('HSET', key, name, shard)
end

-- Replaces an owner's entry in a pool by another one in the same shard.
local function owner_entry_replace(P, name, owner, entry, by)
  local key = shard_key(P, name, redis.call('HGET', owner_pools_key(P, owner), name))
  redis.call('SREM', key, entry)
  redis.call('SADD', key, by)
end

-- Adds the node to a pool that does not contain it. Returns its place.
local function pool_join(P, name, id, owner, size)
  if owner == '' then
    return (entry_add(P, ':pools', name, id, size))
  end
  local group = name .. '@' .. owner
  local only = redis.call('SRANDMEMBER', shard_key(P, group, 0))
  local shard, count = entry_add(P, ':pools:owned', group, id, size)
  if count == 1 then
    redis.call('HSET', owner_pools_key(P, owner), name,
      (entry_add(P, ':pools', name, '+' .. id, size)))
  elseif count == 2 then
    owner_entry_replace(P, name, owner, '+' .. only, '@' .. owner)
  end
  return shard .. '@' .. owner
end

-- Removes the node from its place in a pool.
local function pool_leave(P, name, id, place, size)
  local shard, owner = place_read(place)
  if owner == '' then
    pool_remove(P, name, id, shard, size)
    return
  end
  local group = name .. '@' .. owner
  local left, moved = entry_remove(P, ':pools:owned', group, id, shard, size)
  if moved then
    redis.call('HSET', pools_key(P, moved), name, place)
  end
  if left == 1 then
    local only = redis.call('SRANDMEMBER', shard_key(P, group, 0))
    owner_entry_replace(P, name, owner, '@' .. owner, '+' .. only)
  elseif left == 0 then
    local key = owner_pools_key(P, owner)
    local at = tonumber(redis.call('HGET', key, name))
    redis.call('HDEL', key, name)
    pool_remove(P, name, '+' .. id, at, size)
  end
end
