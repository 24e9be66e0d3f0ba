-- keep_result: keeps a result that could not be delivered to a gateway, or has no home dispatcher.
--
-- Guarantees that only the result of the winning attempt, or of one that may still win, is kept, that
-- nothing replaces the winner's result, and that kept results stay within their byte limits.
--
-- @arg job text
-- @arg result text          '': only asks whether the result would be kept
-- @arg size number          bytes of the result
-- @arg node_id text         the node that claims to have the result; it must be the node of the
--                           attempt, and such results may take half of the room. '': the job's home
--                           dispatcher has the result
-- @arg attempt digits
-- @setting ttl_ms number
-- @setting max_bytes number    of all results
-- Returns 'kept' (if it only asks: would be kept), 'refused', or 'full'.
-- @include lib/now
-- @include lib/attempt
-- @include lib/kept

local most = max_bytes
local now = now_ms()
local known = redis.call('HMGET', job_key(P, job), 'state', 'winner', 'attempt', 'tenant',
  attempt .. ':node', attempt .. ':state')
local state, winner, latest, tenant, at, attempt_state = unpack(known, 1, 6)
tenant = tenant or ''
local has_won = state == 'done' and winner == attempt

if state == 'done' and winner and not has_won then
  return 'refused'
end
if node_id ~= '' then
  most = most / 2
  if at ~= node_id then
    return 'refused'
  end
  if not has_won then
    -- An attempt that was given up may still win if no later attempt has replaced it.
    local may_win = not JOB_OVER[state] and (not ATTEMPT_OVER[attempt_state]
      or (attempt_state == 'released' and latest == attempt))
    if not may_win or (winner and winner ~= attempt and attempt_alive(P, job, winner, now)) then
      return 'refused'
    end
  end
  kept_settle(P, now)
  local _, kept_attempt = kept_size(P, job)
  if kept_attempt == attempt then
    return 'kept'
  end
  if kept_attempt and not has_won then
    return 'refused'
  end
else
  kept_settle(P, now)
end
if not kept_has_room(P, job, tenant, size, most) then
  return 'full'
end
if result ~= '' then
  kept_put(P, job, tenant, attempt, result, ttl_ms, now)
end
return 'kept'
