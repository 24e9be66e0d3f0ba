-- commit: the node has acknowledged the attempt; its reservation becomes a running lease.
--
-- Guarantees that of several attempts of a job one is committed, and that a reservation that was
-- over is taken up again only where the node has room, and that the turn is bound to the node whose
-- acknowledgement came first.
--
-- KEYS 1 prefix
-- ARGV 1 node, 2 job, 3 attempt, 4 running_lease_ms, 5 job_record_ttl_ms
-- Returns {'committed' | 'already' | 'committed_late' | 'no_room' | 'superseded', lease end}.
-- @include lib/now
-- @include lib/attempt
-- @include lib/follow

local P, id, job, attempt = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local lease_ms = tonumber(ARGV[4])
local now = now_ms()
local key, member = job_key(P, job), lease_member(job, attempt)
local known = redis.call('HMGET', key, 'state', 'winner', 'attempt', attempt .. ':node',
  attempt .. ':state')
local state, winner, latest, at, attempt_state = unpack(known, 1, 5)

if at and at ~= id then
  return { 'superseded', 0 }
end
if state and JOB_OVER[state] then
  return { winner == attempt and 'already' or 'superseded', 0 }
end
if winner and winner ~= attempt and attempt_alive(P, job, winner, now) then
  return { 'superseded', 0 }
end
-- An attempt that was given up comes back only while nothing has taken its place; one that has ended
-- never does.
if attempt_state and ATTEMPT_OVER[attempt_state] and (attempt_state ~= 'released'
  or (latest ~= attempt and attempt_alive(P, job, latest, now))) then
  return { 'superseded', 0 }
end

local function record()
  redis.call('HSET', key, 'state', 'acked', 'winner', attempt, 'updated_ms', now,
    attempt .. ':node', id, attempt .. ':state', 'running', attempt .. ':acked_ms', now)
  if not latest or tonumber(latest) < tonumber(attempt) then
    redis.call('HSET', key, 'attempt', attempt)
  end
  redis.call('PEXPIRE', key, ARGV[5])
end

local ends = now + lease_ms
local reserved, running = reserved_key(P, id), running_key(P, id)
local runs_until = lease_end(running, member, now)
if runs_until then
  return { 'already', runs_until }
end
local waits_until = lease_end(reserved, member, now)
if waits_until and waits_until <= ends then
  -- As it should be. The slot stays taken and its lease ends later than before, so what the node's
  -- record says of both stays true.
  redis.call('ZREM', reserved, member)
  redis.call('ZADD', running, ends, member)
  record()
  turn_follow(P, key, attempt, latest, id)
  return { 'committed', ends }
end

local node = live_get(P, id)
if not node then
  -- The store has lost the node, which runs the attempt all the same: its next registration or
  -- beat, which lists the attempt, puts the lease in place.
  record()
  return { 'committed_late', ends }
end
slots_settle(P, id, node, now)
local outcome = 'committed'
if redis.call('ZREM', reserved, member) == 1 then
  node.used = node.used - 1
elseif node.used < node.max then
  outcome = 'committed_late'
else
  return { 'no_room', 0 }
end
slots_take(running, node, member, ends)
live_put(P, id, node)
record()
turn_follow(P, key, attempt, latest, id)
return { outcome, ends }
