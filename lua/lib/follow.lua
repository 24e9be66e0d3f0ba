-- The binding of a turn (turn.lua), where a job has more than one attempt.

-- Session ids that callers choose are unique only within their tenant.
local function turn_key(P, tenant, session, src, tgt)
  return P .. ':turn:' .. tenant .. ':' .. session .. ':' .. src .. ':' .. tgt
end

-- Where a later attempt of the job was placed, the binding that its utterance made went along with
-- it: moves it to the node of this attempt, which is the one that counts. latest: the number of the
-- latest attempt, or nil.
local function turn_follow(P, job, attempt, latest, to)
  if not latest or tonumber(latest) <= tonumber(attempt) then return end
  local from = redis.call('HGET', job, latest .. ':node')
  local of = redis.call('HMGET', job, 'session', 'src', 'tgt', 'utterance', 'tenant')
  if not of[1] or of[1] == '' then return end
  local key = turn_key(P, of[5] or '', of[1], of[2], of[3])
  local turn = redis.call('HMGET', key, 'turn', 'timeout_node_id', 'max_duration_node_id')
  if turn[1] ~= of[4] then return end
  for i, kind in ipairs({ 'timeout', 'max_duration' }) do
    if turn[i + 1] == from then
      local id = redis.call('HGET', job, attempt .. ':turn') or string.sub(job, #P + #':job:' + 1)
      redis.call('HSET', key, kind .. '_node_id', to, 'id', id)
    end
  end
end
