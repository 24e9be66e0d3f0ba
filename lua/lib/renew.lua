-- Renews the leases of what a node says it runs, and puts back those that the store has lost,
-- where there is room and the job's record does not say that the attempt is no longer wanted.
-- @include lib/attempt

-- Whether the attempt of a lease was given up while its node may have had it (release.lua).
local function is_given_up(P, member)
  local job, attempt = string.match(member, '^(.*):(%d+)$')
  return redis.call('HGET', job_key(P, job), attempt .. ':state') == 'released'
end

-- Whether a lease that is not there should be: its job knows the attempt as running on this node,
-- and nothing has taken its place; or the job's record was lost as well.
local function is_lost(P, id, job, attempt, now, state, winner, at, attempt_state)
  if not state then return true end
  return not JOB_OVER[state] and attempt_state == 'running' and at == id
    and not (winner and winner ~= attempt and attempt_alive(P, job, winner, now))
end

-- Appends to `refused` the members that the node should stop: ended, superseded, or no room.
local function renew_running(P, id, node, members, lease_ms, now, refused)
  local running, reserved = running_key(P, id), reserved_key(P, id)
  for _, member in ipairs(members) do
    local ends = lease_end(running, member, now)
    if ends then
      -- A lease in its first half is long enough: most beats write nothing.
      if ends < now + lease_ms / 2 then
        redis.call('ZADD', running, now + lease_ms, member)
      end
    elseif lease_end(reserved, member, now) then
      -- The node is told to stop it before it gets anything else, so its slot is free.
      if is_given_up(P, member) then
        redis.call('ZREM', reserved, member)
        slots_settle(P, id, node, now)
        refused[#refused + 1] = member
      end
    else
      local job, attempt = string.match(member, '^(.*):(%d+)$')
      local record = redis.call('HMGET', job_key(P, job), 'state', 'winner', attempt .. ':node',
        attempt .. ':state')
      slots_settle(P, id, node, now)
      if is_lost(P, id, job, attempt, now, unpack(record, 1, 4)) and node.used < node.max then
        slots_take(running, node, member, now + lease_ms)
      elseif record[4] ~= 'reserved' or record[3] ~= id then
        -- Of a reservation that ended, the node's acknowledgement (Commit) decides.
        refused[#refused + 1] = member
      end
    end
  end
end
