-- The binding of a turn (turn.lua) if a job has more than one attempt.

-- The tenant is part of the key because session ids are unique only within a tenant.
local function turn_key(P, tenant, session, src, tgt)
  return P .. ':turn:' .. tenant .. ':' .. session .. ':' .. src .. ':' .. tgt
end

-- If a later attempt of the job was placed, it took the binding of the utterance to its node. Moves
-- the binding to the node of this attempt, which has won. latest: the number of the latest attempt,
-- or nil.
local function turn_follow(P, job, attempt, latest, to)
  if not latest or tonumber(latest) <= tonumber(attempt) then return end
  local from = redis.call('HGET', job, latest .. ':node')
  local of = redis.call('HMGET', job, 'session', 'src', 'tgt', 'utterance', 'tenant')
  if not of[1] or of[1] == '' then return end
  local key = turn_key(P, of[5] or '', of[1], of[2], of[3])
  local turn = redis.call('HMGET', key, 'turn', 'timeout_node_id', 'max_duration_node_id', 'cell')
  if turn[1] ~= of[4] then return end
  for i, kind in ipairs({ 'timeout', 'max_duration' }) do
    if turn[i + 1] == from then
      local known = redis.call('HMGET', job, attempt .. ':turn', attempt .. ':cell')
      local id, cell = known[1] or string.sub(job, #P + #':job:' + 1), known[2]
      if turn[4] then
        redis.call('HDEL', key, 'cell')
      end
      redis.call('HSET', key, kind .. '_node_id', to, 'id', id, unpack(cell and { 'cell', cell } or {}))
    end
  end
end
