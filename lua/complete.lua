-- complete: an attempt has ended. Its slot is free, and the node's record says how it went.
--
-- Guarantees that one attempt finishes a job, and that a repeat counts nothing twice. An attempt
-- need not have been committed: with its result it is, and its turn stays with its node.
--
-- KEYS 1 prefix
-- ARGV 1 node, 2 job, 3 attempt, 4 outcome (done, failed, timed_out or cancelled), 5 why,
--   6 final state of the job or '' (done: always final), 7 fault (1: it counts against the node),
--   8 eject_failures, 9 eject_ms, 10 eject_max_ms, 11 job_record_ttl_ms, 12 steps, for the record
--   (optional)
-- Returns {'completed' | 'already' | 'superseded', job state}.
-- @include lib/now
-- @include lib/attempt
-- @include lib/record
-- @include lib/quota
-- @include lib/follow

local P, id, job, attempt, outcome = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local now = now_ms()
local key, member = job_key(P, job), lease_member(job, attempt)
local known = redis.call('HMGET', key, 'state', 'winner', 'attempt', attempt .. ':node',
  attempt .. ':state', 'counted', 'tenant', 'session')
local state, winner, latest, at, attempt_state, counted, tenant, session = unpack(known, 1, 8)

local ended = attempt_state and ATTEMPT_OVER[attempt_state] and attempt_state ~= 'released'
local node = live_get(P, id)
if node then
  if not ended and (not at or at == id) then
    if outcome == 'done' then
      record_success(node)
    elseif ARGV[7] == '1' then
      record_failure(node, tenant, session, job, tonumber(ARGV[8]), tonumber(ARGV[9]),
        tonumber(ARGV[10]), now)
    end
  end
  slots_free(P, id, node, member, now)
  live_put(P, id, node)
end

if at and at ~= id then
  return { 'superseded', state }
end
if ended then
  return { (state == 'done' and winner ~= attempt) and 'superseded' or 'already', state }
end

local was_over = state and JOB_OVER[state]
if not was_over then
  if outcome == 'done' then
    if node and winner ~= attempt then
      turn_follow(P, key, attempt, latest, id)
    end
    state = 'done'
    redis.call('HSET', key, 'state', state, 'winner', attempt, 'steps', ARGV[12] or '',
      attempt .. ':state', outcome, attempt .. ':ended_ms', now, 'updated_ms', now)
  else
    if ARGV[6] ~= '' then
      state = ARGV[6]
    elseif state ~= 'unplaced' and (not winner or winner == attempt) then
      state = 'retrying'
    end
    redis.call('HSET', key, 'state', state)
    if winner == attempt then
      redis.call('HDEL', key, 'winner')
    end
  end
  if not latest or tonumber(latest) < tonumber(attempt) then
    redis.call('HSET', key, 'attempt', attempt)
  end
  if counted and JOB_OVER[state] then
    quota_let_go(P, counted, 'jobs', job)
  end
end
if was_over or outcome ~= 'done' or not at or ARGV[5] ~= '' then
  redis.call('HSET', key, attempt .. ':node', id, attempt .. ':state', outcome,
    attempt .. ':ended_ms', now, attempt .. ':why', ARGV[5], 'updated_ms', now)
end
redis.call('PEXPIRE', key, ARGV[11])
return { was_over and 'superseded' or 'completed', state }
