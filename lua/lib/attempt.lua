-- Attempts: their slots, and their fields in the job's record.
-- @include lib/job
-- @include lib/live
-- @include lib/slots

-- Reserves a slot for the attempt on a settled node with room, and records it. fields: more fields of
-- the job's record. Returns when the lease ends.
local function attempt_reserve(P, job, attempt, id, node, path, ttl_ms, record_ttl_ms, now, fields)
  attempt = string.format('%d', attempt)
  local ends = now + ttl_ms
  slots_take(reserved_key(P, id), node, lease_member(job, attempt), ends)
  live_put(P, id, node)
  local key = job_key(P, job)
  redis.call('HSET', key, 'state', 'reserved', 'attempt', attempt, 'updated_ms', now,
    attempt .. ':node', id, attempt .. ':state', 'reserved', attempt .. ':path', path,
    attempt .. ':reserved_ms', now, unpack(fields))
  redis.call('PEXPIRE', key, record_ttl_ms)
  return ends
end

-- If the attempt still holds a slot: its node, when its lease ends, and its state. Otherwise nil.
local function attempt_alive(P, job, attempt, now)
  local at = redis.call('HMGET', job_key(P, job), attempt .. ':node', attempt .. ':state')
  local id, state = at[1], at[2]
  local key
  if state == 'reserved' then
    key = reserved_key(P, id)
  elseif state == 'running' then
    key = running_key(P, id)
  else
    return nil
  end
  local ends = lease_end(key, lease_member(job, attempt), now)
  if ends then
    return id, ends, state
  end
  return nil
end
