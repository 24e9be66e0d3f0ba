-- reserve: reserves a slot on the node that is named.
--
-- Guarantees that a job that is over, and an attempt that has ended or been followed by another, do
-- not come back: those are answered as existing, with no lease (lease end 0).
--
-- KEYS 1 prefix
-- ARGV 1 node, 2 job, 3 attempt, 4 heartbeat_stale_ms, 5 reservation_ttl_ms, 6 job_record_ttl_ms
-- Returns {'ok', existing, lease end, node id, epoch, owner instance, owner address},
--   or {'NODE_NOT_FOUND'}, or {'ALL_CANDIDATES_FULL_OR_FAILED', why, 1}.
-- @include lib/now
-- @include lib/choose
-- @include lib/attempt

local P, id, job, attempt = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3])
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
  local at = known[4] or id
  return answer(1, 0, at, live_get(P, at))
end
if not live_get(P, id) then
  return { 'NODE_NOT_FOUND' }
end
local node, why = try_named(P, { stale_ms = tonumber(ARGV[4]), stages = 0 }, now, id)
if not node then
  return { 'ALL_CANDIDATES_FULL_OR_FAILED', why, 1 }
end
local ends = attempt_reserve(P, job, attempt, id, node, BY_NAME, tonumber(ARGV[5]),
  tonumber(ARGV[6]), now, {})
return answer(0, ends, id, node)
