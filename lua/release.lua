-- release: gives back a reservation that was not committed. If the reservation is gone, frees
-- nothing.
--
-- Guarantees that the slot of an attempt which the node may have (its connection was lost after the
-- attempt was sent) is not given to another job before the node was told to stop. Such a lease stays
-- until the node registers without the attempt, is told to stop it (lib/renew.lua), or the lease
-- ends.
--
-- @arg node_id text
-- @arg job text
-- @arg attempt digits
-- @arg why text          for the record
-- @arg is_fault flag     the failure counts against the node
-- @arg final text        final state of the job, or '' if another attempt may follow
-- @arg may_run flag      the node may have the attempt
-- @setting eject_failures number
-- @setting eject_ms number
-- @setting eject_max_ms number
-- @setting job_log_max digits
-- Returns {'released' | 'nothing' | 'running' | 'left'}.
-- @include lib/now
-- @include lib/attempt
-- @include lib/record
-- @include lib/quota
-- @include lib/job_log

local now = now_ms()
local key, member = job_key(P, job), lease_member(job, attempt)
local known = redis.call('HMGET', key, 'state', 'attempt', attempt .. ':state', attempt .. ':node',
  'counted', 'tenant', 'session', 'utterance', 'src', 'tgt', 'reason', 'created_ms')
local state, latest, attempt_state, at, counted, tenant, session = unpack(known, 1, 7)

if lease_end(running_key(P, node_id), member, now) then
  return { 'running' }
end
local node = live_get(P, node_id)
local freed = lease_end(reserved_key(P, node_id), member, now) ~= nil
local left = freed and may_run
if not left then
  redis.call('ZREM', reserved_key(P, node_id), member)
end
local first_time = attempt_state == 'reserved' and at == node_id
if node and (freed or first_time) then
  if first_time and is_fault then
    record_failure(node, tenant, session, job, eject_failures, eject_ms, eject_max_ms, now)
  end
  slots_settle(P, node_id, node, now)
  live_put(P, node_id, node)
end
if first_time then
  redis.call('HSET', key, attempt .. ':state', 'released', attempt .. ':why', why,
    attempt .. ':ended_ms', now, 'updated_ms', now)
end
local ends = state and not JOB_OVER[state] and final ~= ''
if state and not JOB_OVER[state] then
  if ends then
    state = final
    redis.call('HSET', key, 'state', final, 'updated_ms', now)
    if counted then
      quota_let_go(P, counted, 'jobs', job)
    end
  elseif first_time and state == 'reserved' and latest == attempt then
    state = 'retrying'
    redis.call('HSET', key, 'state', state)
  end
end
if first_time or ends then
  job_log(P, job_log_max, job, state, now, attempt, at or node_id, first_time and 'released' or '',
    latest or 0, { unpack(known, 6, 12) }, '', '')
end
return { left and 'left' or freed and 'released' or 'nothing' }
