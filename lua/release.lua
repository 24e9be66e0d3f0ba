-- release: gives back a reservation that was not committed. Of one that is gone, frees nothing.
--
-- Guarantees that the slot of an attempt which the node may have (its connection was lost after the
-- attempt was sent) is not given to another job before the node was told to stop: such a lease stays
-- until the node registers without the attempt, is told to stop it (renew.lua), or the lease ends.
--
-- KEYS 1 prefix
-- ARGV 1 node, 2 job, 3 attempt, 4 why (for the record), 5 fault (1: it counts against the node),
--   6 final state of the job or '', 7 eject_failures, 8 eject_ms, 9 eject_max_ms,
--   10 may_run (1: the node may have the attempt)
-- Returns {'released' | 'nothing' | 'running' | 'left'}.
-- @include lib/now
-- @include lib/attempt
-- @include lib/record
-- @include lib/quota

local P, id, job, attempt = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local now = now_ms()
local key, member = job_key(P, job), lease_member(job, attempt)
local known = redis.call('HMGET', key, 'state', 'attempt', attempt .. ':state', attempt .. ':node',
  'counted', 'tenant', 'session')
local state, latest, attempt_state, at, counted, tenant, session = unpack(known, 1, 7)

if lease_end(running_key(P, id), member, now) then
  return { 'running' }
end
local node = live_get(P, id)
local freed = lease_end(reserved_key(P, id), member, now) ~= nil
local left = freed and ARGV[10] == '1'
if not left then
  redis.call('ZREM', reserved_key(P, id), member)
end
local first_time = attempt_state == 'reserved' and at == id
if node and (freed or first_time) then
  if first_time and ARGV[5] == '1' then
    record_failure(node, tenant, session, job, tonumber(ARGV[7]), tonumber(ARGV[8]),
      tonumber(ARGV[9]), now)
  end
  slots_settle(P, id, node, now)
  live_put(P, id, node)
end
if first_time then
  redis.call('HSET', key, attempt .. ':state', 'released', attempt .. ':why', ARGV[4],
    attempt .. ':ended_ms', now, 'updated_ms', now)
end
if state and not JOB_OVER[state] then
  if ARGV[6] ~= '' then
    redis.call('HSET', key, 'state', ARGV[6])
    if counted then
      quota_let_go(P, counted, 'jobs', job)
    end
  elseif first_time and state == 'reserved' and latest == attempt then
    redis.call('HSET', key, 'state', 'retrying')
  end
end
return { left and 'left' or freed and 'released' or 'nothing' }
