-- Leases. A slot is a member "<job id>:<attempt>" of one of two sorted sets; its score is the time at
-- which the lease ends. Expired leases are dropped before slots are counted, so the slot of a crashed
-- holder becomes free by itself.
--
-- P:node:<id>:reserved, sorted set: attempts that were sent, or will be
-- P:node:<id>:running, sorted set: attempts that the node has acknowledged
-- @include lib/live

local function reserved_key(P, id)
  return P .. ':node:' .. id .. ':reserved'
end

local function running_key(P, id)
  return P .. ':node:' .. id .. ':running'
end

local function earliest_end(key)
  local first = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
  return tonumber(first[2]) or math.huge
end

-- Settles a node: drops expired leases and counts the rest. The count comes from the sets and not
-- from the cache, so `used` is correct afterwards.
local function slots_settle(P, id, node, now)
  local reserved, running = reserved_key(P, id), running_key(P, id)
  if node.next_end <= now then
    redis.call('ZREMRANGEBYSCORE', reserved, '-inf', now)
    redis.call('ZREMRANGEBYSCORE', running, '-inf', now)
    node.next_end = math.min(earliest_end(reserved), earliest_end(running))
  end
  node.used = redis.call('ZCARD', reserved) + redis.call('ZCARD', running)
  if node.used == 0 then
    node.next_end = math.huge
  end
end

-- Adds a lease to a settled node that has room. The caller writes the node's record.
local function slots_take(key, node, member, ends)
  node.used = node.used + redis.call('ZADD', key, ends, member)
  if node.used == 1 or ends < node.next_end then
    node.next_end = ends
  end
end

-- Removes an attempt's lease from either set, and counts what is left.
local function slots_free(P, id, node, member, now)
  local freed = redis.call('ZREM', running_key(P, id), member)
    + redis.call('ZREM', reserved_key(P, id), member)
  if freed == 1 and node.used > 1 and node.next_end > now then
    node.used = node.used - 1
  else
    slots_settle(P, id, node, now)
  end
end

-- When the lease ends, or nil if there is no live lease.
local function lease_end(key, member, now)
  local ends = tonumber(redis.call('ZSCORE', key, member))
  return ends and ends > now and ends or nil
end
