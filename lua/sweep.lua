-- sweep: checks some nodes and lists those that have timed out. Writes nothing.
--
-- Guarantees that no node is listed because of a silence during which heartbeats could not arrive. If
-- no heartbeat of any node arrives, nodes are listed only after node_forget_ms.
--
-- @arg cursor text
-- @setting nodes_per_step digits
-- @setting heartbeat_stale_ms number
-- @setting node_reconnect_grace_ms number    for a node whose connection has ended
-- @setting node_forget_ms number
-- Returns {next cursor, {ids to take out of their pools}, {ids to forget}}.
-- @include lib/now
-- @include lib/codes
-- @include lib/live
-- @include lib/hearing

local now = now_ms()
local heard_since = hearing_since(P, now, heartbeat_stale_ms)
local page = redis.call('HSCAN', P .. ':nodes:live', cursor, 'COUNT', nodes_per_step)
local expel, forget = {}, {}
for i = 1, #page[2], 2 do
  local node = live_unpack(page[2][i + 1])
  local silent = now - node.beat
  local unheard = now - math.max(node.beat, heard_since)
  if node.health == OUT then
    if silent > node_forget_ms then
      forget[#forget + 1] = page[2][i]
    end
  elseif node.health == LEAVING or unheard > heartbeat_stale_ms or silent > node_forget_ms
    or (node.health == OFFLINE and unheard > node_reconnect_grace_ms) then
    expel[#expel + 1] = page[2][i]
  end
end
return { page[1], expel, forget }
