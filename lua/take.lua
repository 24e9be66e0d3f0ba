-- take: reserves a slot for an attempt of a job that has its record in another cell.
--
-- Guarantees that the node has room. That a job has one live attempt is guaranteed by the job's own cell,
-- which must confirm this one (allocate.lua) before anybody is told. The record of the job that is made
-- here serves only the node and its lease. A slot that is never confirmed becomes free by itself.
--
-- Also takes the arguments of lib/want.lua.
--
-- @arg job text
-- @arg attempt number
-- @arg look flag                    take nothing: only say whether the attempt has a slot
-- @arg bound text                   take a slot on this node, to which the turn is bound; '': on any
-- @arg bound_path number
-- @arg may_wait flag                if the bound node is only full or away, fail with BOUND_NODE_FULL
-- @setting reservation_ttl_ms number
-- @setting job_record_ttl_ms digits
-- Returns {'ok', existing, attempt, job state, lease end, node id, epoch, owner instance, owner address,
--   path}; or {'gone'} if the attempt has no slot (any more); or {'unbound', BindingOutcome} if the bound
--   node cannot be used; or {'BOUND_NODE_FULL', node id, waits for} or {reason, why, times, ...} as
--   allocate.
-- @include lib/now
-- @include lib/want
-- @include lib/choose
-- @include lib/attempt

local now = now_ms()

local function placed(existing, state, ends, id, node, path)
  return { 'ok', existing, attempt, state, ends, id, node and node.epoch or 0,
    node and node.owner or '', node and node.address or '', path }
end

local record = job_key(P, job)
local number = string.format('%d', attempt)
local held_by, held_until, held = attempt_alive(P, job, number, now)
if held_by then
  return placed(1, held == 'running' and 'acked' or 'reserved', held_until, held_by,
    live_get(P, held_by), tonumber(redis.call('HGET', record, number .. ':path')) or 0)
end
-- An attempt that was given up may be taken again: its number was not used, or the cell of the job will
-- not confirm it.
local state = redis.call('HGET', record, number .. ':state')
if look or (state and ATTEMPT_OVER[state] and state ~= 'released') then
  return { 'gone' }
end

local found
if bound ~= '' then
  found = choose_bound(P, want, now, bound, bound_path, may_wait)
  if not found.id and not found.error then
    return { 'unbound', found.binding }
  end
else
  found = choose_any(P, want, now, nothing_found(nil))
end
if found.error then
  return refusal(found)
end
if found.move then
  nearby_note(found.move)
end
local ends = attempt_reserve(P, job, attempt, found.id, found.node, found.path, reservation_ttl_ms,
  job_record_ttl_ms, now, { 'tenant', tenant, 'session', session })
return placed(0, 'reserved', ends, found.id, found.node, found.path)
