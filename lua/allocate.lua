-- allocate: chooses a node, reserves a slot on it, records the job, and moves the turn's binding.
--
-- Guarantees that a job has one live attempt unless its caller asks for a later one, that the node
-- has room for it, and that the binding is used before it is cleared or set anew. A repeat answers
-- what the first call did.
--
-- KEYS 1 prefix
-- ARGV as lib/want.lua, then
--   job, attempt, key, home, utterance, session_epoch (0: not checked),
--   reason (FinalizeReason), may_wait (1: a bound node that is only full is BOUND_NODE_FULL),
--   reservation_ttl_ms, binding_ttl_ms, timeout_binds (1: every Timeout job binds),
--   job_record_ttl_ms, and, only where the tenant has limits, jobs, audio_ms_per_minute (0: no
--   limit), audio_ms of the job, hold_ms (how long it counts as in flight without news of it)
-- Returns {'ok', existing, attempt (0: none), job state, lease end, node id, epoch, owner instance,
--   owner address, path, binding, binding kind, why a job that is over ended (error of lib/job.lua)
--   or '', turn id (lib/turn.lua)}; or {reason, why, times, ...}; where that is
--   BOUND_NODE_FULL, {reason, node id, 'full' | 'silent' | 'disconnected'};
--   QUOTA_EXCEEDED, {reason, 'jobs' or 'audio', used, 'limit', limit, 'retry_ms', ms}.
-- @include lib/now
-- @include lib/want
-- @include lib/choose
-- @include lib/attempt
-- @include lib/quota

local P = KEYS[1]
local now = now_ms()
local want, at = want_read(ARGV)
local job, attempt = ARGV[at], tonumber(ARGV[at + 1])
local utterance = tonumber(ARGV[at + 4])
local session_epoch = tonumber(ARGV[at + 5])
local reason = tonumber(ARGV[at + 6])
local may_wait = ARGV[at + 7] == '1'
local reservation_ttl, binding_ttl = tonumber(ARGV[at + 8]), tonumber(ARGV[at + 9])
local timeout_binds = ARGV[at + 10] == '1'
local tenant, most_jobs = want.tenant, tonumber(ARGV[at + 12]) or 0
local most_audio = tonumber(ARGV[at + 13]) or 0

local function placed(existing, number, state, ends, id, path, binding, kind, why, turn_id, node)
  node = node or live_get(P, id)
  return { 'ok', existing, number, state, ends, id, node and node.epoch or 0,
    node and node.owner or '', node and node.address or '', path, binding, kind, why, turn_id }
end

-- First of all: an old gateway must not even take up a job that runs.
if want.session and session_epoch > 0 then
  local epoch = tonumber(redis.call('HGET', P .. ':session:' .. want.session, 'epoch'))
  if epoch and epoch > session_epoch then
    return { 'SESSION_TAKEN_OVER' }
  end
end

local key = job_key(P, job)
local known = redis.call('HMGET', key, 'state', 'attempt', 'winner', 'created_ms', 'error')
local state, latest = known[1], tonumber(known[2])
if state and JOB_OVER[state] then
  local number = tonumber(known[3]) or latest or 0
  local told = redis.call('HMGET', key, number .. ':node', number .. ':path', number .. ':turn')
  return placed(1, number, state, 0, told[1] or '', tonumber(told[2]) or 0, BINDING_NONE, 0,
    known[5] or '', told[3] or job)
end
if state and latest then
  -- The winner's lease may have ended and a later attempt taken its place; the latest may have been
  -- given up while the one before it still waits for its acknowledgement.
  for _, number in ipairs({ tonumber(known[3]) or latest, latest, attempt }) do
    local id, ends, held = attempt_alive(P, job, number, now)
    -- A caller that asks for a later attempt than one that is only reserved hedges.
    if id and (held == 'running' or attempt <= number) then
      redis.call('HSET', key, 'home', ARGV[at + 3])
      local told = redis.call('HMGET', key, number .. ':node', number .. ':path', number .. ':turn')
      return placed(1, number, held == 'running' and 'acked' or 'reserved', ends, told[1],
        tonumber(told[2]) or 0, BINDING_NONE, 0, '', told[3] or job)
    end
  end
  attempt = math.max(attempt, latest + 1)
end

-- A job that has begun goes on, whatever others have used meanwhile; but one that had ended has given
-- up its place among its tenant's jobs.
local begins = not known[4] or not latest
local begins_anew = state == 'unplaced'
local is_charged = begins and most_audio > 0
local ahead = is_charged and quota_ahead(P, tenant, now)
if begins or begins_anew then
  local refused = most_jobs > 0 and quota_full(P, tenant, 'jobs', most_jobs, JOB_RETRY_MS, now)
    or is_charged and quota_mute(ahead, most_audio)
  if refused then
    return refused
  end
end

local bound, bound_path, turn, last_turn, written, holds
if want.session then
  turn = turn_key(P, tenant, want.session, want.src, want.tgt)
  bound, bound_path, last_turn, written, holds = turn_read(turn, now)
end

local found = choose(P, want, now, bound, bound_path, may_wait)
if found.error then
  return refusal(found)
end

if begins_anew then
  redis.call('HDEL', key, 'error', 'steps')
end
local fields = { 'key', ARGV[at + 2], 'tenant', tenant, 'home', ARGV[at + 3],
  'session', want.session or '', 'utterance', utterance, 'src', want.src, 'tgt', want.tgt,
  'reason', reason }
if begins then
  fields[#fields + 1] = 'created_ms'
  fields[#fields + 1] = now
end
if is_charged then
  quota_charge(P, tenant, ahead, tonumber(ARGV[at + 14]), most_audio, now)
end
if most_jobs > 0 then
  fields[#fields + 1] = 'counted'
  fields[#fields + 1] = tenant
  quota_hold(P, tenant, 'jobs', { job }, tonumber(ARGV[at + 15]), now)
end
-- What goes to the node of its turn is part of that turn; all else begins one.
local turn_id = found.binding == BINDING_HIT and turn_named(turn) or job
if turn_id ~= job then
  fields[#fields + 1] = string.format('%d:turn', attempt)
  fields[#fields + 1] = turn_id
end
local ends = attempt_reserve(P, job, attempt, found.id, found.node, found.path, reservation_ttl,
  tonumber(ARGV[at + 11]), now, fields)

-- A retry takes its binding along; what comes late for an earlier utterance changes nothing.
if turn and reason > 0 and utterance >= last_turn then
  local kind = nil
  if reason == MAX_DURATION or reason == MAX_LENGTH then
    kind = 'max_duration'
  elseif (reason == TIMEOUT or reason == INTERRUPTED) and timeout_binds then
    kind = 'timeout'
  end
  -- The row of holds ends where an utterance was not held.
  local goes_on = bound or utterance == last_turn
  turn_write(turn, written, kind, found.id, utterance, goes_on and holds or 0, binding_ttl, now)
  if kind then
    turn_name(turn, turn_id)
  end
end
return placed(0, attempt, 'reserved', ends, found.id, found.path, found.binding,
  found.binding_kind, '', turn_id, found.node)
