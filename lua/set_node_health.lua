-- set_node_health: what a node says of itself, what its dispatcher knows, or what an operator wants.
--
-- KEYS 1 prefix
-- ARGV 1 node, 2 epoch (0: whichever is current), 3 health (1 ready to 4 offline),
--   4 by operator (1: 3 drains the node until 1 lifts that; what the node reports stays)
-- Returns {'ok'}, {'NODE_NOT_FOUND'} or {'NODE_EPOCH_OLD'}.
-- @include lib/codes
-- @include lib/live

local P, id, epoch, health = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local node = live_get(P, id)
if not node then
  return { 'NODE_NOT_FOUND' }
end
if epoch ~= 0 and epoch ~= node.epoch then
  return { 'NODE_EPOCH_OLD' }
end
if ARGV[4] == '1' then
  node.drained = health == READY and 0 or 1
elseif node.health < LEAVING then
  node.health = health
end
live_put(P, id, node)
return { 'ok' }
