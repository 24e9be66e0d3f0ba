-- bind_session: binds a turn to the node that keeps audio which its next job must join.
--
-- A caller that names a job takes session, direction and utterance from the record of the job; the
-- arguments tenant, session, src, tgt and utterance are then ignored.
--
-- @arg tenant text
-- @arg session text
-- @arg src text
-- @arg tgt text
-- @arg kind text               timeout or max_duration
-- @arg node_id text
-- @arg utterance digits
-- @arg job text                '': none
-- @arg attempt digits
-- @arg cell text               of the node, if that is not the cell of the session; '': it is
-- @setting binding_ttl_ms number
-- @setting held_in_row_max number    0: no limit
-- Returns 'bound'; 'late' if a later utterance has been placed, the node is unknown, or the attempt
--   was not given to this node; or 'limit' if the node would hold audio over more pauses in a row than
--   allowed. A repeated call does not count as another hold.
-- @include lib/now
-- @include lib/job
-- @include lib/live
-- @include lib/turn

local now = now_ms()
local of, given_to, turn_id = { tenant, session, src, tgt, utterance }, node_id, nil
if job ~= '' then
  of = redis.call('HMGET', job_key(P, job), 'tenant', 'session', 'src', 'tgt', 'utterance',
    attempt .. ':node', attempt .. ':turn')
  given_to, turn_id = of[6], of[7] or job
end
if given_to ~= node_id or not of[2] or of[2] == '' then
  return 'late'
end
local key = turn_key(P, of[1] or '', of[2], of[3], of[4])
local index = tonumber(of[5])
local bound, path, latest, written, holds = turn_read(key, now)
-- Nothing is known here of a node in another cell. If it is gone, the next job of the turn finds out.
local node = cell == '' and live_get(P, node_id)
if index < latest or (cell == '' and (not node or node.health >= LEAVING)) then
  return 'late'
end
local is_repeat = index == latest and bound == node_id and path == BY_TIMEOUT_BINDING
if kind == 'timeout' and not is_repeat then
  holds = holds + 1
  if held_in_row_max > 0 and holds > held_in_row_max then
    return 'limit'
  end
end
turn_write(key, written, kind, node_id, cell ~= '' and cell, index, holds, binding_ttl_ms, now)
if turn_id then
  turn_name(key, turn_id)
end
return 'bound'
