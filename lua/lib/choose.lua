-- Chooses a node: the turn's bound node, the preferred node, the draw (or a node nearby in place of
-- the one drawn), then the fallback. Writes only corrected lease counts, and that a slot is kept for a
-- turn.
-- @include lib/codes
-- @include lib/nearby
-- @include lib/turn

local function in_pools(P, want, id)
  local shards = redis.call('HMGET', pools_key(P, id), unpack(want.pools))
  return shards[1] or shards[2] or false
end

-- If a job that continues a turn finds its node full, one slot is kept from all other jobs for this
-- long. A caller that waits repeats its call well within this time.
local KEEP_SLOT_MS = 300

-- Checks one node, given by a binding or a caller. Returns its record if it may be chosen and has
-- room; otherwise nil and 'unavailable' or 'full'. for_turn: may use a slot that is kept for a turn.
local function try_named(P, want, now, id, for_turn)
  local node = live_get(P, id)
  if not node or unfit(want, now, node.beat, node.load, node.ejected, node.health, node.drained,
      node.stages, true) then
    return nil, 'unavailable'
  end
  slots_settle(P, id, node, now)
  if is_full(node.used, node.max, for_turn and 0 or node.kept, now) then
    return nil, 'full'
  end
  return node
end

-- Why a job of a turn should wait for its node: it is 'full'; 'silent' (no heartbeat arrived, which
-- says nothing about the node after an outage of Redis); or 'disconnected' (its stream has ended, and
-- it may connect elsewhere, or it is about to register in another cell). A node that stays away is taken out of its pools. nil: do not wait.
local function turn_waits_for(P, want, now, id, why)
  local node = live_get(P, id)
  if not node or node.drained == DRAINED then return nil end
  if why == 'full' then
    node.kept = now + KEEP_SLOT_MS
    live_put(P, id, node)
    return 'full'
  end
  if node.health == OFFLINE or (node.health == LEAVING and node.drained == MOVING) then
    return 'disconnected'
  end
  if node.health == READY and node.beat <= now - want.stale_ms then return 'silent' end
  return nil
end

-- What is found before anything was tried. bound_path: of the turn's binding, or nil.
local function nothing_found(bound_path)
  return { binding = BINDING_NONE, tally = {},
    binding_kind = bound_path and bound_path - BY_TIMEOUT_BINDING + 1 or 0 }
end

-- Tries the turn's bound node. Returns a table: binding, binding_kind (BindingKind of the contract),
-- tally; if the node is chosen, also id, node (its settled record) and path; or the error
-- BOUND_NODE_FULL, bound and waits_for. may_wait: fail with this error if the node is only full or away.
local function choose_bound(P, want, now, bound, bound_path, may_wait)
  local found = nothing_found(bound_path)
  if want.excluded[bound] or (want.strict and want.preferred and want.preferred ~= bound) then
    found.binding = BINDING_EXCLUDED
  elseif not in_pools(P, want, bound) then
    found.binding = BINDING_UNAVAILABLE
  else
    local node, why = try_named(P, want, now, bound, true)
    if node then
      found.id, found.node, found.path, found.binding = bound, node, bound_path, BINDING_HIT
      return found
    end
    found.binding = why == 'full' and BINDING_FULL or BINDING_UNAVAILABLE
    found.waits_for = may_wait and turn_waits_for(P, want, now, bound, why)
    if found.waits_for then
      found.error, found.bound = 'BOUND_NODE_FULL', bound
    end
  end
  return found
end

-- Chooses a node if the bound one is not chosen. found: from choose_bound or nothing_found; gets id,
-- node, path and move (lib/nearby.lua), or an error.
local function choose_any(P, want, now, found)
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

  local sizes, entries = pool_sizes(P, want)
  found.id, found.node, found.move = draw_nearby(P, want, now, sizes, entries, found.tally)
  found.path = BY_POOL
  if not found.id and entries == 0 then
    found.id, found.node = draw_from_all(P, want, now, found.tally)
    found.path = BY_FALLBACK
  end
  if not found.id then
    local drawn, unable = found.tally.drawn or 0, found.tally.stage or 0
    found.error = drawn == unable and 'NO_CAPABLE_NODE' or 'ALL_CANDIDATES_FULL_OR_FAILED'
  end
  return found
end

-- An error as a script returns it: its reason, then the counts of the draw, or the bound node and why
-- the job should wait for it.
local function refusal(found)
  if found.waits_for then
    return { found.error, found.bound, found.waits_for }
  end
  local reply = { found.error }
  for why, times in pairs(found.tally) do
    reply[#reply + 1] = why
    reply[#reply + 1] = times
  end
  return reply
end
