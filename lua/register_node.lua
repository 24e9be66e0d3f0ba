-- register_node: makes a node known, or known anew after it reconnected.
--
-- Guarantees that a live node is replaced only by its own process, that every connection gets an
-- epoch larger than those before it, and that leases of what the node no longer runs end now (also
-- of attempts that were given up while nobody knew whether the node had them). The
-- pools are left as they are: the caller moves the difference by move_pools.
--
-- KEYS 1 prefix
-- ARGV 1 node, 2 incarnation, 3 stream id, 4 health, 5 load, 6 max_concurrent_jobs,
--   7 stages (bit mask), 8 owner instance, 9 owner address, 10 asr_langs, 11 semantic_langs,
--   12 tts_langs, 13 nmt_pairs (JSON arrays), 14 capability hash, 15 heartbeat_stale_ms,
--   16 running_lease_ms, 17 node owner ('': none), 18 owner_nodes, 19 owner_slots (how many its
--   owner may have; 0: any number), 20 count of attempts that the node still runs, then that many leases
--   ("<job id>:<attempt>"), then the leases of what it has finished and nobody has confirmed
-- Returns {'ok', epoch, whether its pools are as the capability hash says}, or
--   {'NODE_ID_CONFLICT', owner instance}, or {'QUOTA_EXCEEDED', 'owner_nodes' or 'owner_slots', used,
--   'limit', limit, 'retry_ms', ms}.
-- @include lib/now
-- @include lib/codes
-- @include lib/renew
-- @include lib/owners

local P, id, incarnation, stream = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local now = now_ms()
local key = P .. ':node:' .. id
local known = redis.call('HMGET', key, 'incarnation', 'stream_id', 'pools_hash', 'node_owner')
local owner = ARGV[17]
local node = live_get(P, id)

if node and known[1] ~= incarnation and node.health < OFFLINE
  and node.beat > now - tonumber(ARGV[15]) then
  return { 'NODE_ID_CONFLICT', node.owner }
end
local refused = owner_add(P, owner, known[4], id, tonumber(ARGV[6]), tonumber(ARGV[18]),
  tonumber(ARGV[19]))
if refused then
  return refused
end

if not node then
  node = { epoch = 0, next_end = 0, ejected = 0, kept = 0, used = 0, drained = 0, failures = 0,
    ejections = 0, blamed = 0, health = READY }
end
local was_out = node.health == LEAVING or node.health == OUT
if node.epoch == 0 or known[2] ~= stream or was_out then
  -- The time, so that an epoch is never given twice, not even after the store was emptied.
  node.epoch = math.max(now * 1000, node.epoch + 1)
end
node.health, node.load, node.max = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
node.stages, node.owner, node.address, node.beat = tonumber(ARGV[7]), ARGV[8], ARGV[9], now

local still_runs, members = {}, {}
local first_finished = 21 + tonumber(ARGV[20])
for i = 21, first_finished - 1 do
  members[#members + 1] = ARGV[i]
  still_runs[ARGV[i]] = true
end
local has_result = {}
for i = first_finished, #ARGV do
  has_result[ARGV[i]] = true
end
for _, member in ipairs(redis.call('ZRANGE', running_key(P, id), 0, -1)) do
  if not still_runs[member] and not has_result[member] then
    redis.call('ZREM', running_key(P, id), member)
  end
end
for _, member in ipairs(redis.call('ZRANGE', reserved_key(P, id), 0, -1)) do
  if not still_runs[member] and is_given_up(P, member) then
    redis.call('ZREM', reserved_key(P, id), member)
  end
end
renew_running(P, id, node, members, tonumber(ARGV[16]), now, {})
slots_settle(P, id, node, now)
live_put(P, id, node)

local in_place = known[3] == ARGV[14] and not was_out
if not in_place then
  redis.call('HDEL', key, 'pools_hash')
end
redis.call('HSET', key, 'incarnation', incarnation, 'stream_id', stream, 'node_owner', owner,
  'asr_langs', ARGV[10], 'semantic_langs', ARGV[11], 'tts_langs', ARGV[12], 'nmt_pairs', ARGV[13])
redis.call('SADD', P .. ':nodes:all', id)
return { 'ok', node.epoch, in_place and 1 or 0 }
