-- look_up_node: says what this cell knows of a node that may register in another one. Writes nothing.
--
-- @arg node_id text
-- @arg incarnation text
-- @arg node_owner text       '': none
-- @setting heartbeat_stale_ms number
-- Returns {the dispatcher of a live node of another process with this id, or ''; its epoch, or 0 if it
--   is unknown; how many leases it has; when an operator began to drain it, or 0; how many nodes and
--   slots its owner has here, without this node}.
-- @include lib/now
-- @include lib/codes
-- @include lib/slots
-- @include lib/owners

local now = now_ms()
local holder, epoch, leases, drained_ms = '', 0, 0, 0
local node = live_get(P, node_id)
if node then
  local known = redis.call('HMGET', P .. ':node:' .. node_id, 'incarnation', 'drained_ms')
  if known[1] ~= incarnation and node.health < OFFLINE and node.beat > now - heartbeat_stale_ms then
    holder = node.owner
  end
  epoch = node.epoch
  for _, key in ipairs({ reserved_key(P, node_id), running_key(P, node_id) }) do
    leases = leases + redis.call('ZCOUNT', key, '(' .. now, '+inf')
  end
  drained_ms = node.drained == DRAINED and (tonumber(known[2]) or now) or 0
end
local nodes, slots = owner_count(P, node_owner, node_id)
return { holder, epoch, leases, drained_ms, nodes, slots }
