-- Renews the leases of the attempts that a node runs, and restores leases that Redis has lost, if
-- there is room and the attempt is still wanted.
-- @include lib/attempt

-- Whether the attempt of a lease was given up although its node may have it (release.lua).
local function is_given_up(P, member)
  local job, attempt = string.match(member, '^(.*):(%d+)$')
  return redis.call('HGET', job_key(P, job), attempt .. ':state') == 'released'
end

-- Whether a missing lease was lost: by its job, the attempt runs on this node and no other attempt
-- has replaced it; or the record of the job was lost as well.
local function is_lost(P, id, job, attempt, now, state, winner, at, attempt_state)
  if not state then return true end
  return not JOB_OVER[state] and attempt_state == 'running' and at == id
    and not (winner and winner ~= attempt and attempt_alive(P, job, winner, now))
end

-- Renews the leases, and appends to `refused` those that the node should stop: ended, superseded, or
-- no room.
local function renew_running(P, id, node, members, lease_ms, now, refused)
  local running, reserved = running_key(P, id), reserved_key(P, id)
  for _, member in ipairs(members) do
    local ends = lease_end(running, member, now)
    if ends then
      -- A lease in its first half is long enough, so most heartbeats write nothing.
      if ends < now + lease_ms / 2 then
        redis.call('ZADD', running, now + lease_ms, member)
      end
    elseif lease_end(reserved, member, now) then
      -- The node is told to stop the attempt before it gets another job, so the slot is free.
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
        -- For an expired reservation the acknowledgement (commit.lua) decides.
        refused[#refused + 1] = member
      end
    end
  end
end
