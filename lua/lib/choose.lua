-- The choice of a node: the turn's bound node, the preferred node, the draw, the fallback.
-- Writes nothing but the counts of leases that have ended.
-- @include lib/codes
-- @include lib/draw
-- @include lib/turn

local function in_pools(P, want, id)
  local shards = redis.call('HMGET', pools_key(P, id), unpack(want.pools))
  return shards[1] or shards[2] or false
end

-- One node, named by a binding or a caller. Returns its record where it is fit and has room;
-- otherwise nil and why not: 'unavailable' or 'full'.
local function try_named(P, want, now, id)
  local node = live_get(P, id)
  if not node or unfit(want, now, node.beat, node.load, node.ejected, node.health, node.drained,
      node.stages, true) then
    return nil, 'unavailable'
  end
  slots_settle(P, id, node, now)
  if node.used >= node.max then
    return nil, 'full'
  end
  return node
end

-- Whether a node was there a moment ago, and may be back in the next: its stream has ended, or
-- nothing was heard of it. Who stays away is taken out of its pools.
local function is_away(P, want, now, id)
  local node = live_get(P, id)
  return node and node.drained == 0 and (node.health == OFFLINE
    or (node.health == READY and node.beat <= now - want.stale_ms))
end

-- Returns a table: id, node (its record, settled), path, binding, binding_kind (BindingKind of the
-- contract); or error and tally.
-- bound, bound_path: the turn's binding, or nil. may_wait: a bound node that is only full or away
-- is an error of its own.
local function choose(P, want, now, bound, bound_path, may_wait)
  local found = { binding = BINDING_NONE, binding_kind = 0, tally = {} }

  if bound then
    found.binding_kind = bound_path - BY_TIMEOUT_BINDING + 1
    if want.excluded[bound] or (want.strict and want.preferred and want.preferred ~= bound) then
      found.binding = BINDING_EXCLUDED
    elseif not in_pools(P, want, bound) then
      found.binding = BINDING_UNAVAILABLE
    else
      local node, why = try_named(P, want, now, bound)
      if node then
        found.id, found.node, found.path, found.binding = bound, node, bound_path, BINDING_HIT
        return found
      end
      found.binding = why == 'full' and BINDING_FULL or BINDING_UNAVAILABLE
      if may_wait and (why == 'full' or is_away(P, want, now, bound)) then
        found.error = 'BOUND_NODE_FULL'
        return found
      end
    end
  end

  if want.preferred then
    if not in_pools(P, want, want.preferred) then
      found.error = 'PREFERRED_NODE_NOT_CAPABLE'
      return found
    end
    local node, why = nil, 'excluded'
    if not want.excluded[want.preferred] then
      node, why = try_named(P, want, now, want.preferred)
    end
    if node then
      found.id, found.node, found.path = want.preferred, node, BY_PREFERRED
      return found
    end
    if want.strict then
      count(found.tally, why)
      found.error = 'ALL_CANDIDATES_FULL_OR_FAILED'
      return found
    end
  end

  local members
  found.id, found.node, members = draw_from_pools(P, want, now, found.tally)
  found.path = BY_POOL
  if not found.id and members == 0 then
    found.id, found.node = draw_from_all(P, want, now, found.tally)
    found.path = BY_FALLBACK
  end
  if not found.id then
    local drawn, unable = found.tally.drawn or 0, found.tally.stage or 0
    found.error = drawn == unable and 'NO_CAPABLE_NODE' or 'ALL_CANDIDATES_FULL_OR_FAILED'
  end
  return found
end

-- An error as a script returns it: its reason, then what the draw counted.
local function refusal(found)
  local reply = { found.error }
  for why, times in pairs(found.tally) do
    reply[#reply + 1] = why
    reply[#reply + 1] = times
  end
  return reply
end
