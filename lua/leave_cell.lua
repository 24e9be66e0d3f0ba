-- leave_cell: makes nodes leave this cell for another one.
--
-- A node without leases gets no more jobs and must register again; the registration deletes it here
-- (remove_node). Until then, a job of a turn that it has begun waits (lib/choose.lua). A node with leases is marked: until it has none, it gets only jobs that must have it,
-- those of a turn that it has begun and those that name it. A heartbeat removes the mark, so the
-- caller repeats the call after each one for as long as the node belongs elsewhere.
--
-- @arg most number           so many leave, and so many are marked, at most
-- @each node_ids text
-- Returns the ids of the nodes that leave.
-- @include lib/now
-- @include lib/codes
-- @include lib/slots

local now = now_ms()
local left, marked = {}, 0
for _, id in ipairs(node_ids) do
  local node = live_get(P, id)
  if node then
    slots_settle(P, id, node, now)
    local moves = false
    if node.used == 0 and #left < most then
      node.health = math.max(node.health, LEAVING)
      left[#left + 1] = id
      moves = true
    elseif node.used > 0 and marked < most then
      marked = marked + 1
      moves = true
    end
    if moves and node.drained == 0 then
      node.drained = MOVING
    end
    live_put(P, id, node)
  end
end
return left
