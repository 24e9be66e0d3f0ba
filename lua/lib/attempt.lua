-- Attempts: their slots, and their fields in the job's record.
-- @include lib/job
-- @include lib/live
-- @include lib/slots

-- Records an attempt that has a slot on a node. fields: more fields of the job's record.
local function attempt_record(P, job, attempt, id, path, record_ttl_ms, now, fields)
  local key = job_key(P, job)
  redis.call('HSET', key, 'state', 'reserved', 'attempt', attempt, 'updated_ms', now,
    attempt .. ':node', id, attempt .. ':state', 'reserved', attempt .. ':path', path,
    attempt .. ':reserved_ms', now, unpack(fields))
  redis.call('PEXPIRE', key, record_ttl_ms)
end

-- Reserves a slot for the attempt on a settled node with room, and records it. Returns when the lease
-- ends.
local function attempt_reserve(P, job, attempt, id, node, path, ttl_ms, record_ttl_ms, now, fields)
  attempt = string.format('%d', attempt)
  local ends = now + ttl_ms
  slots_take(reserved_key(P, id), node, lease_member(job, attempt), ends)
  live_put(P, id, node)
  attempt_record(P, job, attempt, id, path, record_ttl_ms, now, fields)
  return ends
end

-- If the attempt still holds a slot: its node, when its lease ends, and its state. Otherwise nil.
-- The lease of an attempt in another cell is there: it counts as held, and the fourth result is the
-- cell.
local function attempt_alive(P, job, attempt, now)
  local at = redis.call('HMGET', job_key(P, job), attempt .. ':node', attempt .. ':state',
    attempt .. ':cell')
  local id, state, cell = unpack(at, 1, 3)
  if cell and (state == 'reserved' or state == 'running') then
    return id, 0, state, cell
  end
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
