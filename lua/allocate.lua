-- allocate: chooses a node, reserves a slot on it, records the job, and updates the turn's binding.
--
-- Guarantees that a job has one live attempt unless its caller asks for a later one, that the node
-- has room, and that a binding is used before it is cleared or replaced. A repeated call returns what
-- the first one did.
--
-- Also takes the arguments of lib/want.lua.
--
-- @arg job text
-- @arg attempt number
-- @arg key text                     the key by which the job is deduplicated, for its record
-- @arg home text                    dispatcher instance that runs the job
-- @arg utterance number
-- @arg session_epoch number         0: not checked
-- @arg reason number                FinalizeReason
-- @arg may_wait flag                if the bound node is only full or away, fail with BOUND_NODE_FULL
-- @arg max_jobs number              limits of the tenant; 0: none
-- @arg max_audio_ms number          per minute
-- @arg audio_ms number              speech of this job
-- @arg unbound number               BindingOutcome of the turn, if another cell was asked; 0: find out
-- @arg taken_node text              node on which another cell has reserved a slot for exactly this
--                                   attempt (take.lua); '': none
-- @arg taken_cell text
-- @arg taken_path number
-- @setting many_cells flag          whether a node may be in another cell
-- @setting hold_ms number           how long a job counts as in flight without news of it
-- @setting reservation_ttl_ms number
-- @setting binding_ttl_ms number
-- @setting timeout_binds flag       every Timeout job binds its turn
-- @setting job_record_ttl_ms digits
-- @setting job_log_max digits
-- Returns {'ok', existing, attempt (0: none), job state, lease end, node id, epoch, owner instance,
--   owner address, path, binding, binding kind, why a job that is over ended (error of lib/job.lua)
--   or '', turn id (lib/turn.lua)};
--   or {reason, why, times, ...};
--   or {'BOUND_NODE_FULL', node id, 'full' | 'silent' | 'disconnected'};
--   or, if there are many cells: the first but with 'elsewhere' instead of 'ok' and one part more, the
--   cell that knows the node and the lease; or {'bound_elsewhere', node id, its cell or '', path, attempt};
--   or {reason, {attempt, binding}, why, times, ...}; or {'stale'}: the attempt that was taken is no
--   longer the next one;
--   or {'QUOTA_EXCEEDED', 'jobs' or 'audio', used, 'limit', limit, 'retry_ms', ms}.
-- @include lib/now
-- @include lib/want
-- @include lib/choose
-- @include lib/attempt
-- @include lib/quota
-- @include lib/job_log

local now = now_ms()
-- The record of a node that is in another cell, which knows it.
local NOT_HERE = { epoch = 0, owner = '', address = '' }

local function placed(existing, number, state, ends, id, path, binding, kind, why, turn_id, node)
  node = node or live_get(P, id)
  return { 'ok', existing, number, state, ends, id, node and node.epoch or 0,
    node and node.owner or '', node and node.address or '', path, binding, kind, why, turn_id }
end

-- This check comes first: an old gateway must not even adopt a running job.
if want.session and session_epoch > 0 then
  local epoch = tonumber(redis.call('HGET', P .. ':session:' .. want.session, 'epoch'))
  if epoch and epoch > session_epoch then
    return { 'SESSION_TAKEN_OVER' }
  end
end

local record = job_key(P, job)
local known = redis.call('HMGET', record, 'state', 'attempt', 'winner', 'created_ms', 'error')
local state, latest = known[1], tonumber(known[2])
if state and JOB_OVER[state] then
  local number = tonumber(known[3]) or latest or 0
  local told = redis.call('HMGET', record, number .. ':node', number .. ':path', number .. ':turn')
  return placed(1, number, state, 0, told[1] or '', tonumber(told[2]) or 0, BINDING_NONE, 0,
    known[5] or '', told[3] or job)
end
if state and latest then
  -- The winner's lease may have ended and a later attempt may have replaced it. The latest attempt
  -- may have been given up while the one before it still waits for its acknowledgement.
  for _, number in ipairs({ tonumber(known[3]) or latest, latest, attempt }) do
    local id, ends, held, cell = attempt_alive(P, job, number, now)
    -- A caller that asks for a later attempt than a reserved one wants a hedge.
    if id and (held == 'running' or attempt <= number) then
      redis.call('HSET', record, 'home', home)
      local told = redis.call('HMGET', record, number .. ':node', number .. ':path', number .. ':turn')
      local reply = placed(1, number, held == 'running' and 'acked' or 'reserved', ends, told[1],
        tonumber(told[2]) or 0, BINDING_NONE, 0, '', told[3] or job, cell and NOT_HERE)
      if cell then
        reply[1], reply[#reply + 1] = 'elsewhere', cell
      end
      return reply
    end
  end
  local asked = attempt
  attempt = math.max(attempt, latest + 1)
  if taken_node ~= '' and attempt ~= asked then
    return { 'stale' }
  end
end

-- A job that has begun continues, even if its tenant is over its limits by now. A job that had ended
-- has given up its place among the jobs of its tenant.
local begins = not known[4] or not latest
local begins_anew = state == 'unplaced'
local is_charged = begins and max_audio_ms > 0
local ahead = is_charged and quota_ahead(P, tenant, now)
if begins or begins_anew then
  local refused = max_jobs > 0 and quota_full(P, tenant, 'jobs', max_jobs, JOB_RETRY_MS, now)
    or is_charged and quota_mute(ahead, max_audio_ms)
  if refused then
    return refused
  end
end

local bound, bound_path, turn, last_turn, written, holds, bound_cell
if want.session then
  turn = turn_key(P, tenant, want.session, want.src, want.tgt)
  bound, bound_path, last_turn, written, holds, bound_cell = turn_read(turn, now)
end

local found
if unbound > 0 or not bound then
  found = nothing_found(bound_path)
  found.binding = unbound > 0 and unbound or BINDING_NONE
else
  found = choose_bound(P, want, now, bound, bound_path, may_wait)
  if many_cells and found.binding == BINDING_UNAVAILABLE and (bound_cell or not live_get(P, bound)) then
    return { 'bound_elsewhere', bound, bound_cell or '', bound_path, attempt }
  end
end
if taken_node ~= '' then
  found.id, found.node, found.path = taken_node, NOT_HERE, taken_path
elseif not found.id and not found.error then
  choose_any(P, want, now, found)
end
if found.error then
  local reply = refusal(found)
  if many_cells and not found.waits_for then
    table.insert(reply, 2, { attempt, found.binding })
  end
  return reply
end

if found.move then
  nearby_note(found.move)
end
if begins_anew then
  redis.call('HDEL', record, 'error', 'steps')
end
local fields = { 'key', key, 'tenant', tenant, 'home', home,
  'session', want.session or '', 'utterance', utterance, 'src', want.src, 'tgt', want.tgt,
  'reason', reason }
if begins then
  fields[#fields + 1] = 'created_ms'
  fields[#fields + 1] = now
end
if is_charged then
  quota_charge(P, tenant, ahead, audio_ms, max_audio_ms, now)
end
if max_jobs > 0 then
  fields[#fields + 1] = 'counted'
  fields[#fields + 1] = tenant
  quota_hold(P, tenant, 'jobs', { job }, hold_ms, now)
end
-- A job that goes to the bound node continues its turn. Any other job begins a turn.
local turn_id = found.binding == BINDING_HIT and turn_named(turn) or job
if turn_id ~= job then
  fields[#fields + 1] = string.format('%d:turn', attempt)
  fields[#fields + 1] = turn_id
end
local ends = 0
if taken_node ~= '' then
  fields[#fields + 1] = string.format('%d:cell', attempt)
  fields[#fields + 1] = taken_cell
  attempt_record(P, job, string.format('%d', attempt), taken_node, taken_path, job_record_ttl_ms, now,
    fields)
else
  ends = attempt_reserve(P, job, attempt, found.id, found.node, found.path, reservation_ttl_ms,
    job_record_ttl_ms, now, fields)
end
job_log(P, job_log_max, job, 'reserved', now, attempt, found.id, '', attempt,
  { tenant, session, utterance, src, tgt, reason, begins and now or known[4] }, '', '')

-- A retry moves the binding to its node. A late call for an earlier utterance changes nothing.
if turn and reason > 0 and utterance >= last_turn then
  local kind = nil
  if reason == MAX_DURATION or reason == MAX_LENGTH then
    kind = 'max_duration'
  elseif (reason == TIMEOUT or reason == INTERRUPTED) and timeout_binds then
    kind = 'timeout'
  end
  -- The count of holds in a row restarts after an utterance that was not held.
  local goes_on = bound or utterance == last_turn
  turn_write(turn, written, kind, found.id, taken_node ~= '' and taken_cell, utterance, goes_on and holds or 0, binding_ttl_ms, now)
  if kind then
    turn_name(turn, turn_id)
  end
end
return placed(0, attempt, 'reserved', ends, found.id, found.path, found.binding,
  found.binding_kind, '', turn_id, found.node)
