-- complete: ends an attempt, frees its slot, and records success or failure of the node.
--
-- Guarantees that only one attempt finishes a job, and that a repeated call counts nothing twice. An
-- attempt may complete without a commit: its result implies the acknowledgement.
--
-- @arg node_id text
-- @arg job text
-- @arg attempt digits
-- @arg outcome text        done, failed, timed_out or cancelled
-- @arg why text            for the record
-- @arg final text          final state of the job, or '' if another attempt may follow (done: ignored)
-- @arg is_fault flag       the failure counts against the node
-- @arg steps text          JobSteps of the contract, for the record
-- @arg kind digits         JobResult.Kind, for the log; 0: not known
-- @setting eject_failures number
-- @setting eject_ms number
-- @setting eject_max_ms number
-- @setting job_record_ttl_ms digits
-- @setting job_log_max digits
-- Returns {'completed' | 'already' | 'superseded', job state}.
-- @include lib/now
-- @include lib/attempt
-- @include lib/record
-- @include lib/quota
-- @include lib/follow
-- @include lib/job_log

local now = now_ms()
local key, member = job_key(P, job), lease_member(job, attempt)
local known = redis.call('HMGET', key, 'state', 'winner', 'attempt', attempt .. ':node',
  attempt .. ':state', 'counted', 'tenant', 'session', 'utterance', 'src', 'tgt', 'reason',
  'created_ms', attempt .. ':cell')
local state, winner, latest, at, attempt_state, counted, tenant, session = unpack(known, 1, 8)
local cell = known[14]

local ended = attempt_state and ATTEMPT_OVER[attempt_state] and attempt_state ~= 'released'
local node = live_get(P, node_id)
if node then
  if not ended and (not at or at == node_id) then
    if outcome == 'done' then
      record_success(node)
    elseif is_fault then
      record_failure(node, tenant, session, job, eject_failures, eject_ms, eject_max_ms, now)
    end
  end
  slots_free(P, node_id, node, member, now)
  live_put(P, node_id, node)
end

if at and at ~= node_id then
  return { 'superseded', state }
end
if ended then
  return { (state == 'done' and winner ~= attempt) and 'superseded' or 'already', state }
end

local was_over = state and JOB_OVER[state]
if not was_over then
  if outcome == 'done' then
    if (node or cell) and winner ~= attempt then
      turn_follow(P, key, attempt, latest, node_id)
    end
    state = 'done'
    redis.call('HSET', key, 'state', state, 'winner', attempt, 'steps', steps,
      attempt .. ':state', outcome, attempt .. ':ended_ms', now, 'updated_ms', now)
  else
    if final ~= '' then
      state = final
    elseif state ~= 'unplaced' and (not winner or winner == attempt) then
      state = 'retrying'
    end
    redis.call('HSET', key, 'state', state)
    if winner == attempt then
      redis.call('HDEL', key, 'winner')
    end
  end
  if not latest or tonumber(latest) < tonumber(attempt) then
    latest = attempt
    redis.call('HSET', key, 'attempt', attempt)
  end
  if counted and JOB_OVER[state] then
    quota_let_go(P, counted, 'jobs', job)
  end
end
if was_over or outcome ~= 'done' or not at or why ~= '' then
  redis.call('HSET', key, attempt .. ':node', node_id, attempt .. ':state', outcome,
    attempt .. ':ended_ms', now, attempt .. ':why', why, 'updated_ms', now)
end
redis.call('PEXPIRE', key, job_record_ttl_ms)
local won = outcome == 'done' and not was_over and kind ~= '0'
job_log(P, job_log_max, job, state, now, attempt, node_id, outcome, latest or 0,
  { unpack(known, 7, 13) }, '', won and kind or '')
return { was_over and 'superseded' or 'completed', state }
