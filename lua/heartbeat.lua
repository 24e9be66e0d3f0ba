-- heartbeat: renews many nodes, and the leases of what they run. Touches no pool.
--
-- KEYS 1 prefix
-- ARGV 1 running_lease_ms, 2 heartbeat_stale_ms, then for each node: id, epoch, health (0: unchanged), load,
--   count of running attempts, and that many leases ("<job id>:<attempt>")
-- Returns a list of what needs an answer: {node id, 'register_again'}, {node id, 'epoch_old'}, or
--   {node id, 'not_renewed', lease, ...}. Every other beat was taken.
-- @include lib/now
-- @include lib/codes
-- @include lib/hearing
-- @include lib/renew

-- Fields read or written by one command: unpack's arguments live on Lua's stack.
local AT_ONCE = 1000

local P = KEYS[1]
local lease_ms = tonumber(ARGV[1])
local now = now_ms()
local problems = {}

hearing_note(P, now, tonumber(ARGV[2]))

local at = 3
while at <= #ARGV do
  local ids, starts = {}, {}
  while at <= #ARGV and #ids < AT_ONCE do
    ids[#ids + 1] = ARGV[at]
    starts[#starts + 1] = at
    at = at + 5 + tonumber(ARGV[at + 4])
  end
  local packed = redis.call('HMGET', P .. ':nodes:live', unpack(ids))
  local updates, seen = {}, {}
  for i, id in ipairs(ids) do
    local from = starts[i]
    -- A node that is named twice goes on from what its first beat left.
    local node = seen[id] or (packed[i] and live_unpack(packed[i]))
    seen[id] = node
    if not node then
      problems[#problems + 1] = { id, 'register_again' }
    elseif node.epoch ~= tonumber(ARGV[from + 1]) then
      problems[#problems + 1] = { id, 'epoch_old' }
    elseif node.health >= LEAVING then
      problems[#problems + 1] = { id, 'register_again' }
    else
      local health = tonumber(ARGV[from + 2])
      node.beat, node.load = now, tonumber(ARGV[from + 3])
      if health > 0 then
        node.health = health
      end
      local running = tonumber(ARGV[from + 4])
      if running > 0 then
        local members, refused = {}, { id, 'not_renewed' }
        for k = from + 5, from + 4 + running do
          members[#members + 1] = ARGV[k]
        end
        renew_running(P, id, node, members, lease_ms, now, refused)
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
