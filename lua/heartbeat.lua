-- heartbeat: renews many nodes and the leases of the attempts that they run. Does not touch pools.
--
-- @setting running_lease_ms number
-- @setting heartbeat_stale_ms number
-- @each beats.node_id text
-- @each beats.epoch number
-- @each beats.health number     0: unchanged
-- @each beats.load number
-- @each beats.running texts     leases ("<job id>:<attempt>") of the attempts that the node runs
-- Returns a list of problems: {node id, 'register_again'}, {node id, 'epoch_old'}, or
--   {node id, 'not_renewed', lease, ...}. All other heartbeats were accepted.
-- @include lib/now
-- @include lib/codes
-- @include lib/hearing
-- @include lib/renew

-- Fields read or written by one command. The limit is the size of Lua's stack, which holds unpack's
-- results.
local AT_ONCE = 1000

local now = now_ms()
local problems = {}

hearing_note(P, now, heartbeat_stale_ms)

local ids, epochs, healths, loads = beats.node_id, beats.epoch, beats.health, beats.load
for first = 1, #ids, AT_ONCE do
  local last = math.min(first + AT_ONCE - 1, #ids)
  local packed = redis.call('HMGET', P .. ':nodes:live', unpack(ids, first, last))
  local updates, seen = {}, {}
  for i = first, last do
    local id, record = ids[i], packed[i - first + 1]
    -- A second heartbeat of the same node continues from the first one.
    local node = seen[id] or (record and live_unpack(record))
    seen[id] = node
    if not node then
      problems[#problems + 1] = { id, 'register_again' }
    elseif node.epoch ~= epochs[i] then
      problems[#problems + 1] = { id, 'epoch_old' }
    elseif node.health >= LEAVING then
      problems[#problems + 1] = { id, 'register_again' }
    else
      local health, running = healths[i], beats.running[i]
      node.beat, node.load = now, loads[i]
      if health > 0 then
        node.health = health
      end
      if node.drained == MOVING then
        node.drained = 0
      end
      if #running > 0 then
        local refused = { id, 'not_renewed' }
        renew_running(P, id, node, running, running_lease_ms, now, refused)
        if #refused > 2 then
          problems[#problems + 1] = refused
        end
      end
      updates[#updates + 1] = id
      updates[#updates + 1] = live_pack(node)
    end
  end
  if #updates > 0 then
    redis.call('HSET', P .. ':nodes:live', unpack(updates))
  end
end
return problems
