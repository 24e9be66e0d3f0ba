-- Renews the leases of what a node says it runs, and puts back those that the store has lost,
-- where there is room and the job's record does not say that the attempt has ended.
-- @include lib/slots

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
    elseif not lease_end(reserved, member, now) then
      local job, attempt = string.match(member, '^(.*):(%d+)$')
      local record = redis.call('HMGET', P .. ':job:' .. job, 'state', attempt .. ':state')
      local lost = not record[1] or record[2] == 'running'
      slots_settle(P, id, node, now)
      if lost and node.used < node.max then
        slots_take(running, node, member, now + lease_ms)
      elseif record[2] ~= 'reserved' then
        -- Of a reservation that ended, the node's acknowledgement (Commit) decides.
        refused[#refused + 1] = member
      end
    end
  end
end
