-- sweep: looks at some nodes, and names those whose time is over. Writes nothing.
--
-- Guarantees that no node is named for a silence during which heartbeats could not arrive. If no
-- heartbeat of any node arrives, nodes are named only after node_forget_ms.
--
-- KEYS 1 prefix
-- ARGV 1 cursor, 2 how many nodes, 3 heartbeat_stale_ms, 4 node_reconnect_grace_ms (for a node
--   whose stream has ended), 5 node_forget_ms
-- Returns {next cursor, {ids to take out of their pools}, {ids to forget}}.
-- @include lib/now
-- @include lib/codes
-- @include lib/live
-- @include lib/hearing

local P = KEYS[1]
local now = now_ms()
local stale_ms, grace_ms, forget_ms = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local heard_since = hearing_since(P, now, stale_ms)
local page = redis.call('HSCAN', P .. ':nodes:live', ARGV[1], 'COUNT', ARGV[2])
local expel, forget = {}, {}
for i = 1, #page[2], 2 do
  local node = live_unpack(page[2][i + 1])
  local silent = now - node.beat
  local unheard = now - math.max(node.beat, heard_since)
  if node.health == OUT then
    if silent > forget_ms then
      forget[#forget + 1] = page[2][i]
    end
  elseif node.health == LEAVING or unheard > stale_ms or silent > forget_ms
    or (node.health == OFFLINE and unheard > grace_ms) then
    expel[#expel + 1] = page[2][i]
  end
end
return { page[1], expel, forget }
