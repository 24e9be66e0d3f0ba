-- Turn affinity: which node holds audio that the next job of this session and direction must join.
--
-- P:turn:<tenant>:<session>:<src>:<tgt>, hash:
--   timeout_node_id, timeout_until_ms              the node that keeps audio after a pause
--   max_duration_node_id, max_duration_until_ms    the node that has the first part of long speech
--   cell    the cell of the bound node, if that is not the cell of the session
--   turn    the latest utterance that was placed; calls for an earlier one change nothing
--   holds   consecutive pauses over which a node has kept audio; absent: 0
--   id      the id of the turn, if a node is bound: the id of the job that began it. Nodes identify the
--           turn by it and never learn the session.
-- @include lib/codes
-- @include lib/follow

-- Returns the bound node and its path (timeout first), or nil and nil; the latest utterance; whether
-- there is anything to clear; the number of consecutive holds; and the cell of the bound node, or nil.
local function turn_read(key, now)
  local turn = redis.call('HMGET', key, 'timeout_node_id', 'timeout_until_ms',
    'max_duration_node_id', 'max_duration_until_ms', 'turn', 'holds', 'cell')
  local latest, written = tonumber(turn[5]) or -1, turn[1] or turn[3] or turn[6]
  local holds = tonumber(turn[6]) or 0
  if turn[1] and tonumber(turn[2]) > now then
    return turn[1], BY_TIMEOUT_BINDING, latest, written, holds, turn[7] or nil
  end
  if turn[3] and tonumber(turn[4]) > now then
    return turn[3], BY_MAX_DURATION_BINDING, latest, written, holds, turn[7] or nil
  end
  return nil, nil, latest, written, holds
end

-- Replaces the bindings by one of the given kind ('timeout' or 'max_duration'; nil: none), and
-- records the utterance and the consecutive holds. written: from turn_read. cell: of the node, or nil.
local function turn_write(key, written, kind, id, cell, utterance, holds, ttl_ms, now)
  if written then
    redis.call('DEL', key)
  end
  if kind then
    redis.call('HSET', key, 'turn', utterance, kind .. '_node_id', id,
      kind .. '_until_ms', now + ttl_ms, unpack(cell and { 'cell', cell } or {}))
  else
    redis.call('HSET', key, 'turn', utterance)
  end
  if holds > 0 then
    redis.call('HSET', key, 'holds', holds)
  end
  redis.call('PEXPIRE', key, ttl_ms)
end

-- The id of a turn that continues, or nil.
local function turn_named(key)
  return redis.call('HGET', key, 'id') or nil
end

-- Sets the id of a turn whose binding was just written.
local function turn_name(key, id)
  redis.call('HSET', key, 'id', id)
end
