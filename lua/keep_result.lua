-- keep_result: keeps a result that found no gateway, or no home.
--
-- Guarantees that only the winning attempt, or one that may still win, has its result kept, that
-- nothing replaces the winner's, and that results take no more room than they may.
--
-- KEYS 1 prefix
-- ARGV 1 job, 2 result ('': only asks), 3 its bytes, 4 how long in ms, 5 node, 6 attempt,
--   7 bytes of all results at most
-- Node: who says that it has the result of that attempt; it must be the one that was given it, and
-- such results take half of the room at most. Empty: the job's home says so.
-- Returns 'kept' (where it only asks: it would be), 'refused', or 'full'.
-- @include lib/now
-- @include lib/attempt
-- @include lib/kept

local P, job, bytes, ttl_ms, node, attempt = KEYS[1], ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[4]),
  ARGV[5], ARGV[6]
local most = tonumber(ARGV[7])
local now = now_ms()
local known = redis.call('HMGET', job_key(P, job), 'state', 'winner', 'attempt', 'tenant',
  attempt .. ':node', attempt .. ':state')
local state, winner, latest, tenant, at, attempt_state = unpack(known, 1, 6)
tenant = tenant or ''
local has_won = state == 'done' and winner == attempt

if state == 'done' and winner and not has_won then
  return 'refused'
end
if node ~= '' then
  most = most / 2
  if at ~= node then
    return 'refused'
  end
  if not has_won then
    -- One that was given up may still win, as long as nothing has taken its place.
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
if not kept_has_room(P, job, tenant, bytes, most) then
  return 'full'
end
if ARGV[2] ~= '' then
  kept_put(P, job, tenant, attempt, ARGV[2], ttl_ms, now)
end
return 'kept'
