-- reserve: reserves a slot on a given node.
--
-- Guarantees that a job that is over, and an attempt that has ended or was replaced by a later one,
-- is not started again: such a call returns an existing attempt without a lease (lease end 0).
--
-- @arg node_id text
-- @arg job text
-- @arg attempt number
-- @setting heartbeat_stale_ms number
-- @setting reservation_ttl_ms number
-- @setting job_record_ttl_ms digits
-- Returns {'ok', existing, lease end, node id, epoch, owner instance, owner address},
--   or {'NODE_NOT_FOUND'}, or {'ALL_CANDIDATES_FULL_OR_FAILED', why, 1}.
-- @include lib/now
-- @include lib/choose
-- @include lib/attempt

local now = now_ms()

local function answer(existing, ends, at, node)
  return { 'ok', existing, ends, at, node and node.epoch or 0, node and node.owner or '',
    node and node.address or '' }
end

local held_by, held_until = attempt_alive(P, job, attempt, now)
if held_by then
  return answer(1, held_until, held_by, live_get(P, held_by))
end
local known = redis.call('HMGET', job_key(P, job), 'state', 'attempt', attempt .. ':state',
  attempt .. ':node')
if (known[1] and JOB_OVER[known[1]]) or (known[3] and ATTEMPT_OVER[known[3]])
  or attempt < (tonumber(known[2]) or 0) then
  local at = known[4] or node_id
  return answer(1, 0, at, live_get(P, at))
end
if not live_get(P, node_id) then
  return { 'NODE_NOT_FOUND' }
end
local node, why = try_named(P, { stale_ms = heartbeat_stale_ms, stages = 0 }, now, node_id)
if not node then
  return { 'ALL_CANDIDATES_FULL_OR_FAILED', why, 1 }
end
local ends = attempt_reserve(P, job, attempt, node_id, node, BY_NAME, reservation_ttl_ms,
  job_record_ttl_ms, now, {})
return answer(0, ends, node_id, node)
