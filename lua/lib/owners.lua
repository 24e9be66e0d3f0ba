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

-- Adds the node, or its new number of slots, to the count of its owner. before: its previous owner,
-- or nil. Returns nil; or the refusal, if the owner would exceed its limit of nodes or slots (0: no
-- limit). Then nothing has changed.
local function owner_add(P, owner, before, id, slots, max_nodes, max_slots)
  if owner ~= '' then
    local key = owner_nodes_key(P, owner)
    local had = tonumber(redis.call('HGET', key, id))
    local nodes = redis.call('HLEN', key) - (had and 1 or 0)
    local used = (tonumber(redis.call('HGET', P .. ':owners:slots', owner)) or 0) - (had or 0)
    if max_nodes > 0 and nodes + 1 > max_nodes then
      return { 'QUOTA_EXCEEDED', 'owner_nodes', nodes, 'limit', max_nodes, 'retry_ms',
        OWNER_RETRY_MS }
    end
    if max_slots > 0 and used + slots > max_slots then
      return { 'QUOTA_EXCEEDED', 'owner_slots', used, 'limit', max_slots, 'retry_ms',
        OWNER_RETRY_MS }
    end
    redis.call('HSET', key, id, slots)
    redis.call('HSET', P .. ':owners:slots', owner, used + slots)
  end
  if before and before ~= '' and before ~= owner then
    owner_drop(P, before, id)
  end
  return nil
end
