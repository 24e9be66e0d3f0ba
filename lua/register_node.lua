-- register_node: registers a node, or registers it again after it has reconnected.
--
-- Guarantees that a live node is replaced only by its own process, that every connection gets a
-- larger epoch than the ones before it, and that the leases of attempts which the node no longer runs
-- end now (also those of attempts that were given up while it was unknown whether the node had them).
-- Pools are not changed: the caller moves the node with move_pools.
--
-- @arg node_id text
-- @arg incarnation text
-- @arg stream text             id of the connection
-- @arg health number
-- @arg load number
-- @arg max_concurrent_jobs number
-- @arg stages number           bit mask
-- @arg owner_instance text     dispatcher that has the connection
-- @arg owner_address text
-- @arg asr_langs text          this and the following three are JSON arrays
-- @arg semantic_langs text
-- @arg tts_langs text
-- @arg nmt_pairs text
-- @arg pools_hash text         hash of the capabilities, which decide the pools
-- @arg node_owner text         '': none
-- @arg epoch_before number     its last one in the cell that it comes from; 0: it comes from none
-- @arg drained_ms_before number    when an operator began to drain it there; 0: it is not drained
-- @arg owner_nodes_elsewhere number    that its owner has in other cells
-- @arg owner_slots_elsewhere number
-- @setting heartbeat_stale_ms number
-- @setting running_lease_ms number
-- @setting owner_nodes number    that one owner may have; 0: no limit
-- @setting owner_slots number    that one owner may have; 0: no limit
-- @arg running texts           leases ("<job id>:<attempt>") of the attempts that the node runs
-- @each finished text          leases of attempts whose result nobody has confirmed
-- Returns {'ok', epoch, 1 if its pools match pools_hash, otherwise 0}, or
--   {'NODE_ID_CONFLICT', owner instance}, or {'QUOTA_EXCEEDED', 'owner_nodes' or 'owner_slots', used,
--   'limit', limit, 'retry_ms', ms}.
-- @include lib/now
-- @include lib/codes
-- @include lib/renew
-- @include lib/owners

local now = now_ms()
local key = P .. ':node:' .. node_id
local known = redis.call('HMGET', key, 'incarnation', 'stream_id', 'pools_hash', 'node_owner')
local node = live_get(P, node_id)

if node and known[1] ~= incarnation and node.health < OFFLINE
  and node.beat > now - heartbeat_stale_ms then
  return { 'NODE_ID_CONFLICT', node.owner }
end
local refused = owner_add(P, node_owner, known[4], node_id, max_concurrent_jobs, owner_nodes,
  owner_slots, owner_nodes_elsewhere, owner_slots_elsewhere)
if refused then
  return refused
end

if not node then
  node = { epoch = epoch_before, next_end = 0, ejected = 0, kept = 0, used = 0,
    drained = 0, failures = 0, ejections = 0, blamed = 0, health = READY }
  if drained_ms_before > 0 then
    node.drained = DRAINED
    redis.call('HSET', key, 'drained_ms', drained_ms_before, 'drained_used', 0)
  end
end
local was_out = node.health == LEAVING or node.health == OUT
if node.epoch == 0 or known[2] ~= stream or was_out then
  -- Derived from the time, so that an epoch is unique even after Redis has lost its data.
  node.epoch = math.max(now * 1000, node.epoch + 1, epoch_before + 1)
end
if node.drained == MOVING then
  node.drained = 0
end
node.health, node.load, node.max, node.stages = health, load, max_concurrent_jobs, stages
node.owner, node.address, node.beat = owner_instance, owner_address, now

local still_runs, has_result = {}, {}
for _, member in ipairs(running) do
  still_runs[member] = true
end
for _, member in ipairs(finished) do
  has_result[member] = true
end
for _, member in ipairs(redis.call('ZRANGE', running_key(P, node_id), 0, -1)) do
  if not still_runs[member] and not has_result[member] then
    redis.call('ZREM', running_key(P, node_id), member)
  end
end
for _, member in ipairs(redis.call('ZRANGE', reserved_key(P, node_id), 0, -1)) do
  if not still_runs[member] and is_given_up(P, member) then
    redis.call('ZREM', reserved_key(P, node_id), member)
  end
end
renew_running(P, node_id, node, running, running_lease_ms, now, {})
slots_settle(P, node_id, node, now)
live_put(P, node_id, node)

local in_place = known[3] == pools_hash and not was_out
if not in_place then
  redis.call('HDEL', key, 'pools_hash')
end
redis.call('HSET', key, 'incarnation', incarnation, 'stream_id', stream, 'node_owner', node_owner,
  'asr_langs', asr_langs, 'semantic_langs', semantic_langs, 'tts_langs', tts_langs,
  'nmt_pairs', nmt_pairs)
redis.call('SADD', P .. ':nodes:all', node_id)
return { 'ok', node.epoch, in_place and 1 or 0 }
