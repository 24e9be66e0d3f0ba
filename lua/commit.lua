-- commit: turns a reservation into a running lease when the node has acknowledged the attempt.
--
-- Guarantees that only one attempt of a job is committed, that a reservation which has expired is
-- restored only if the node has room, and that the turn is bound to the node that acknowledged first.
--
-- @arg node_id text
-- @arg job text
-- @arg attempt digits
-- @setting running_lease_ms number
-- @setting job_record_ttl_ms digits
-- Returns {'committed' | 'already' | 'committed_late' | 'no_room' | 'superseded', lease end}.
-- @include lib/now
-- @include lib/attempt
-- @include lib/follow

local now = now_ms()
local key, member = job_key(P, job), lease_member(job, attempt)
local known = redis.call('HMGET', key, 'state', 'winner', 'attempt', attempt .. ':node',
  attempt .. ':state', attempt .. ':cell')
local state, winner, latest, at, attempt_state, cell = unpack(known, 1, 6)

if at and at ~= node_id then
  return { 'superseded', 0 }
end
if state and JOB_OVER[state] then
  return { winner == attempt and 'already' or 'superseded', 0 }
end
if winner and winner ~= attempt and attempt_alive(P, job, winner, now) then
  return { 'superseded', 0 }
end
-- An attempt that was given up is restored only if no later attempt has replaced it. One that has
-- ended is never restored.
if attempt_state and ATTEMPT_OVER[attempt_state] and (attempt_state ~= 'released'
  or (latest ~= attempt and attempt_alive(P, job, latest, now))) then
  return { 'superseded', 0 }
end

local function record()
  redis.call('HSET', key, 'state', 'acked', 'winner', attempt, 'updated_ms', now,
    attempt .. ':node', node_id, attempt .. ':state', 'running', attempt .. ':acked_ms', now)
  if not latest or tonumber(latest) < tonumber(attempt) then
    redis.call('HSET', key, 'attempt', attempt)
  end
  redis.call('PEXPIRE', key, job_record_ttl_ms)
end

local ends = now + running_lease_ms
local reserved, running = reserved_key(P, node_id), running_key(P, node_id)
local runs_until = lease_end(running, member, now)
if runs_until then
  return { 'already', runs_until }
end
local waits_until = lease_end(reserved, member, now)
if waits_until and waits_until <= ends then
  -- The usual case. The slot stays taken and its lease ends later than before, so the counts in the
  -- node's record stay correct.
  redis.call('ZREM', reserved, member)
  redis.call('ZADD', running, ends, member)
  record()
  turn_follow(P, key, attempt, latest, node_id)
  return { 'committed', ends }
end

local node = live_get(P, node_id)
if not node then
  -- The lease is in another cell. Or Redis has lost the node, but the node runs the attempt. Its next
  -- registration or heartbeat lists the attempt, and that creates the lease.
  record()
  if cell then
    turn_follow(P, key, attempt, latest, node_id)
  end
  return { 'committed_late', ends }
end
slots_settle(P, node_id, node, now)
local outcome = 'committed'
if redis.call('ZREM', reserved, member) == 1 then
  node.used = node.used - 1
elseif node.used < node.max then
  outcome = 'committed_late'
else
  return { 'no_room', 0 }
end
slots_take(running, node, member, ends)
live_put(P, node_id, node)
record()
turn_follow(P, key, attempt, latest, node_id)
return { outcome, ends }
