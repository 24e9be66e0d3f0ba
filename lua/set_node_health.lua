-- set_node_health: sets the health that a node or its dispatcher reports, or that an operator wants.
--
-- P:node:<id>, hash: while an operator's drain lasts, it has
--   drained_ms      when the drain began
--   drained_used    how many slots were in use then
--
-- @arg node_id text
-- @arg epoch number         0: any
-- @arg health number        1 (ready) to 4 (offline)
-- @arg by_operator flag     3 drains the node until 1 ends that; the reported health is kept
-- Returns {'ok'}, {'NODE_NOT_FOUND'} or {'NODE_EPOCH_OLD'}.
-- @include lib/now
-- @include lib/codes
-- @include lib/slots

local node = live_get(P, node_id)
if not node then
  return { 'NODE_NOT_FOUND' }
end
if epoch ~= 0 and epoch ~= node.epoch then
  return { 'NODE_EPOCH_OLD' }
end
if by_operator and health == READY then
  node.drained = 0
  redis.call('HDEL', P .. ':node:' .. node_id, 'drained_ms', 'drained_used')
elseif by_operator then
  -- A repeated drain continues the first one.
  if node.drained ~= DRAINED then
    local now = now_ms()
    slots_settle(P, node_id, node, now)
    redis.call('HSET', P .. ':node:' .. node_id, 'drained_ms', now, 'drained_used', node.used)
  end
  node.drained = DRAINED
elseif node.health < LEAVING then
  node.health = health
end
live_put(P, node_id, node)
return { 'ok' }
