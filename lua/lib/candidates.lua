-- Chooses one of the nodes that were drawn.
-- @include lib/codes
-- @include lib/live
-- @include lib/slots

-- Why a node may not be chosen, or nil. relaxed: ignore load, ejection and that it moves.
local function unfit(want, now, beat, load, ejected, health, drained, stages, relaxed)
  if health ~= READY or drained == DRAINED then return 'not_ready' end
  if beat <= now - want.stale_ms then return 'stale' end
  if bit.band(stages, want.stages) ~= want.stages then return 'stage' end
  if relaxed then return nil end
  if drained == MOVING then return 'not_ready' end
  if load > want.threshold then return 'overloaded' end
  if ejected > now then return 'ejected' end
  return nil
end

-- Whether a node has no room for an ordinary job. One slot may be kept for a turn (choose.lua).
local function is_full(used, max, kept, now)
  return used >= max - (kept > now and 1 or 0)
end

local function count(tally, why)
  tally[why] = (tally[why] or 0) + 1
  tally.drawn = (tally.drawn or 0) + 1
end

-- The ids of ejected candidates that are left out: at most a share of those drawn. If more are
-- ejected, an attacker may have caused that, so a random selection of them stay candidates.
local function left_out_of(want, now, ids, packed)
  local ejected = {}
  for i = 1, #ids do
    if packed[i] and not want.excluded[ids[i]] then
      local beat, _, _, load, until_ms, _, _, _, health, drained, stages =
        struct.unpack(LIVE_FORMAT, packed[i])
      if unfit(want, now, beat, load, until_ms, health, drained, stages) == 'ejected' then
        ejected[#ejected + 1] = ids[i]
      end
    end
  end
  local left_out = {}
  for i = 1, math.min(#ejected, math.floor(want.eject_share * #ids)) do
    local drawn = math.random(i, #ejected)
    ejected[i], ejected[drawn] = ejected[drawn], ejected[i]
    left_out[ejected[i]] = true
  end
  return left_out
end

-- Counts for each drawn node why it could not be chosen.
local function count_all(want, now, drawn, tally)
  local ids, packed = drawn.ids, drawn.packed
  for i = 1, #ids do
    local record = packed[i]
    if not record then
      count(tally, 'gone')
    elseif want.excluded[ids[i]] then
      count(tally, 'excluded')
    else
      local beat, _, _, load, ejected, _, _, _, health, drained, stages =
        struct.unpack(LIVE_FORMAT, record)
      local why = unfit(want, now, beat, load, ejected, health, drained, stages)
      if why == 'ejected' and not drawn.left_out[ids[i]] then why = nil end
      count(tally, why or 'full')
    end
  end
end

-- The best node that may be chosen and has room, of drawn.ids[from] to drawn.ids[to]: lowest
-- effective load, then fewest missed heartbeats, then random. Returns id and settled record, or nil.
-- Changes the order of these nodes. If want.defers is set, the record of a node of another dispatcher
-- is not settled yet, which its field is_unsettled says: the job may be moved (lib/nearby.lua).
--
-- drawn: ids, packed (their records), and left_out (from left_out_of) once it is known.
-- rule: nil      leaves out all ejected nodes
--       'share'  leaves out ejected nodes, but at most a share of all drawn nodes
--       'idle'   accepts only a node that no other could beat. Stops at an ejected node, because a few
--                nodes do not show how many are ejected, and then also returns true.
--       'local'  leaves out all ejected nodes, and nodes of other dispatchers than want.instance
local best_of
function best_of(P, want, now, drawn, from, to, rule)
  local ids, packed = drawn.ids, drawn.packed
  local best, best_load, best_missed, unbeaten
  local beat_ms, instance = want.stale_ms / 3, rule == 'local' and want.instance
  for i = from, to do
    -- The order is random, so choosing the first of equal nodes is fair, and the loop can stop at a
    -- node that no other could beat.
    if i < to then
      local other = math.random(i, to)
      ids[i], ids[other] = ids[other], ids[i]
      packed[i], packed[other] = packed[other], packed[i]
    end
    local id, record = ids[i], packed[i]
    if record and not want.excluded[id] and (not instance or live_owner(record) == instance) then
      local beat, _, next_end, load, ejected, kept, used, max, health, drained, stages =
        struct.unpack(LIVE_FORMAT, record)
      local why = unfit(want, now, beat, load, ejected, health, drained, stages)
      if why == 'ejected' then
        if rule == 'idle' then return nil, nil, true end
        if rule == 'share' then
          drawn.left_out = drawn.left_out or left_out_of(want, now, ids, packed)
          if not drawn.left_out[id] then why = nil end
        end
      end
      if not why and next_end <= now then
        local node = live_unpack(record)
        slots_settle(P, id, node, now)
        live_put(P, id, node)
        packed[i] = live_pack(node)
        used = node.used
      end
      if not why and is_full(used, max, kept, now) then why = 'full' end
      load = used / max
      if not why and (not best or load <= best_load) then
        local missed = math.floor((now - beat) / beat_ms)
        if not best or load < best_load or missed < best_missed then
          best, best_load, best_missed = i, load, missed
          unbeaten = load == 0 and missed <= 0
          if unbeaten then break end
        end
      end
    end
  end
  if not best or (rule == 'idle' and not unbeaten) then return nil end
  local id, node = ids[best], live_unpack(packed[best])
  if want.defers and node.owner ~= want.instance then
    node.is_unsettled = true
    return id, node
  end
  slots_settle(P, id, node, now)
  if not is_full(node.used, node.max, node.kept, now) then return id, node end
  -- The cached count was wrong. Correct it and choose the next best.
  live_put(P, id, node)
  packed[best] = live_pack(node)
  return best_of(P, want, now, drawn, from, to, rule)
end
