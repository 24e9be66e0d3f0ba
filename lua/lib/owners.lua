-- Owners of nodes, and how many nodes and slots each may have.
--
-- P:node:<id>, hash: node_owner, the owner of the node; absent or '': it has none
-- P:owner:<owner>:nodes, hash: node id -> max_concurrent_jobs, for its nodes that are in pools or are
--   joining them
-- P:owners:slots, hash: owner -> sum of the above

-- When to retry: nodes that are gone count until they have left their pools.
local OWNER_RETRY_MS = 5000

local function owner_nodes_key(P, owner)
  return P .. ':owner:' .. owner .. ':nodes'
end

-- Removes the node from the count of its owner, if it is counted.
local function owner_drop(P, owner, id)
  local key = owner_nodes_key(P, owner)
  local slots = redis.call('HGET', key, id)
  if not slots then return end
  redis.call('HDEL', key, id)
  if redis.call('HINCRBY', P .. ':owners:slots', owner, -slots) == 0 then
    redis.call('HDEL', P .. ':owners:slots', owner)
  end
end

-- How many nodes and slots the owner has, without this node.
local function owner_count(P, owner, id)
  if owner == '' then return 0, 0 end
  local key = owner_nodes_key(P, owner)
  local had = tonumber(redis.call('HGET', key, id))
  local used = (tonumber(redis.call('HGET', P .. ':owners:slots', owner)) or 0) - (had or 0)
  return redis.call('HLEN', key) - (had and 1 or 0), used
end

-- Adds the node, or its new number of slots, to the count of its owner. before: its previous owner,
-- or nil. other_nodes, other_slots: what the owner has in other cells, which was read before, so that
-- nodes which register in several cells at the same time may exceed the limit. Returns nil; or the
-- refusal, if the owner would exceed its limit of nodes or slots (0: no limit). Then nothing has
-- changed.
local function owner_add(P, owner, before, id, slots, max_nodes, max_slots, other_nodes, other_slots)
  if owner ~= '' then
    local nodes, used = owner_count(P, owner, id)
    if max_nodes > 0 and nodes + other_nodes + 1 > max_nodes then
      return { 'QUOTA_EXCEEDED', 'owner_nodes', nodes + other_nodes, 'limit', max_nodes, 'retry_ms',
        OWNER_RETRY_MS }
    end
    if max_slots > 0 and used + other_slots + slots > max_slots then
      return { 'QUOTA_EXCEEDED', 'owner_slots', used + other_slots, 'limit', max_slots, 'retry_ms',
        OWNER_RETRY_MS }
    end
    redis.call('HSET', owner_nodes_key(P, owner), id, slots)
    redis.call('HSET', P .. ':owners:slots', owner, used + slots)
  end
  if before and before ~= '' and before ~= owner then
    owner_drop(P, before, id)
  end
  return nil
end
