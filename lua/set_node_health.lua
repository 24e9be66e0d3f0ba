-- set_node_health: sets the health that a node or its dispatcher reports, or that an operator wants.
--
-- @arg node_id text
-- @arg epoch number         0: any
-- @arg health number        1 (ready) to 4 (offline)
-- @arg by_operator flag     3 drains the node until 1 ends that; the reported health is kept
-- Returns {'ok'}, {'NODE_NOT_FOUND'} or {'NODE_EPOCH_OLD'}.
-- @include lib/codes
-- @include lib/live

local node = live_get(P, node_id)
if not node then
  return { 'NODE_NOT_FOUND' }
end
if epoch ~= 0 and epoch ~= node.epoch then
  return { 'NODE_EPOCH_OLD' }
end
if by_operator then
  node.drained = health == READY and 0 or 1
elseif node.health < LEAVING then
  node.health = health
end
live_put(P, node_id, node)
return { 'ok' }
