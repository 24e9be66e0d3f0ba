-- The draw: a bounded number of nodes at random, the least loaded of them taken.
-- @include lib/codes
-- @include lib/live
-- @include lib/slots
-- @include lib/pools

-- Shards that are looked at before a draw gives up. Shards after the first are drawn only where
-- nothing in those before had room, so that the choice stays fair: the first shard comes up in
-- proportion to its size, and within it all are alike.
local MAX_SHARDS = 3

-- Nodes that are looked at first. Where one of them is idle, no other could be better, and the rest
-- of the draw is spared. Of pools that are hardly larger all are looked at at once.
local FEW, MANY = 4, 8

-- Why a node may not be chosen, or nil. `relaxed`: only what makes it unable, not unwise.
local function unfit(want, now, beat, load, ejected, health, drained, stages, relaxed)
  if health ~= READY or drained == 1 then return 'not_ready' end
  if beat <= now - want.stale_ms then return 'stale' end
  if bit.band(stages, want.stages) ~= want.stages then return 'stage' end
  if relaxed then return nil end
  if load > want.threshold then return 'overloaded' end
  if ejected > now then return 'ejected' end
  return nil
end

-- Whether an ordinary job finds no room. One slot may be kept for a turn (choose.lua).
local function is_full(used, max, kept, now)
  return used >= max - (kept > now and 1 or 0)
end

local function count(tally, why)
  tally[why] = (tally[why] or 0) + 1
  tally.drawn = (tally.drawn or 0) + 1
end

-- Which of the candidates are left out because they are ejected, by id: at most a share of those
-- drawn. If more are ejected, somebody may have seen to that; chance decides which of them are
-- candidates all the same.
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

-- Why none of the candidates could be taken, each by itself. left_out: as left_out_of said, or nil.
local function count_all(want, now, ids, packed, tally, left_out)
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
      if why == 'ejected' and not left_out[ids[i]] then why = nil end
      count(tally, why or 'full')
    end
  end
end

-- The best of the candidates that is fit and has room: least effective load, then fewest missed
-- beats, then a node of the asking instance, then chance. Returns id and settled record, or nil.
-- idle_only: nothing but a node that no other could beat.
local best_of
function best_of(P, want, now, ids, packed, tally, idle_only)
  local best, best_load, best_missed, best_local, unbeaten, left_out
  local beat_ms, instance = want.stale_ms / 3, want.instance
  for i = 1, #ids do
    -- They are looked at in random order, so of equals the first is as fair as any, and the rest is
    -- spared where one is found that no other could beat.
    local drawn = math.random(i, #ids)
    ids[i], ids[drawn] = ids[drawn], ids[i]
    packed[i], packed[drawn] = packed[drawn], packed[i]
    local id, record = ids[i], packed[i]
    if record and not want.excluded[id] then
      local beat, _, next_end, load, ejected, kept, used, max, health, drained, stages =
        struct.unpack(LIVE_FORMAT, record)
      local why = unfit(want, now, beat, load, ejected, health, drained, stages)
      if why == 'ejected' then
        -- A few nodes do not tell how many of the pool are ejected.
        if idle_only then return nil end
        left_out = left_out or left_out_of(want, now, ids, packed)
        if not left_out[id] then why = nil end
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
        local is_local = instance ~= '' and live_owner(record) == instance
        if not best or load < best_load or missed < best_missed
          or (missed == best_missed and is_local and not best_local) then
          best, best_load, best_missed, best_local = i, load, missed, is_local
          unbeaten = load == 0 and missed <= 0 and (is_local or instance == '')
          if unbeaten then break end
        end
      end
    end
  end
  if not best then
    if not idle_only then count_all(want, now, ids, packed, tally, left_out) end
    return nil
  end
  if idle_only and not unbeaten then return nil end
  local id, node = ids[best], live_unpack(packed[best])
  slots_settle(P, id, node, now)
  if not is_full(node.used, node.max, node.kept, now) then return id, node end
  -- The cache was wrong. It is put right, and the next best is taken.
  live_put(P, id, node)
  packed[best] = live_pack(node)
  return best_of(P, want, now, ids, packed, tally, idle_only)
end

-- Draws so many nodes of a shard, and takes the best. Returns id and settled record, or nil.
local function draw_from_shard(P, want, now, key, k, tally, idle_only)
  local ids = redis.call('SRANDMEMBER', key, k)
  if #ids == 0 then return nil end
  local packed = redis.call('HMGET', P .. ':nodes:live', unpack(ids))
  return best_of(P, want, now, ids, packed, tally, idle_only)
end

-- Draws from the pools that `want` names, as if they were one. Returns id and record, or nil; and
-- how many nodes the pools have.
local function draw_from_pools(P, want, now, tally)
  local sizes = redis.call('HMGET', P .. ':pools', unpack(want.pools))
  local total = 0
  for i = 1, #sizes do
    sizes[i] = tonumber(sizes[i]) or 0
    total = total + sizes[i]
  end
  local seen, rounds = {}, total > 0 and MAX_SHARDS or 0
  for round = 1, rounds do
    local at, pool = math.random(0, total - 1), 1
    while at >= sizes[pool] do
      at = at - sizes[pool]
      pool = pool + 1
    end
    local key = shard_key(P, want.pools[pool], math.floor(at / want.size))
    if not seen[key] then
      seen[key] = true
      local id, node
      if round == 1 and want.sample_k > FEW and total > MANY then
        id, node = draw_from_shard(P, want, now, key, FEW, tally, true)
      end
      if not id then
        id, node = draw_from_shard(P, want, now, key, want.sample_k, tally)
      end
      if id then return id, node, total end
    end
  end
  return nil, nil, total
end

local function speaks(languages, code)
  return languages and string.find(languages, '"' .. code .. '"', 1, true) ~= nil
end

-- Whether the node could be in one of the pools that `want` names, from what it declared.
local function capable(P, want, id)
  local has = redis.call('HMGET', P .. ':node:' .. id, 'asr_langs', 'semantic_langs', 'tts_langs',
    'nmt_pairs')
  return speaks(has[1], want.src)
    and speaks(has[2], want.src)
    and (has[4] == '[]' or speaks(has[4], want.src .. ':' .. want.tgt))
    and (not want.tts or speaks(has[3], want.tgt))
end

-- The fallback: draws from all nodes, by capability, for the moment between a node's registration
-- and its place in a pool.
local function draw_from_all(P, want, now, tally)
  local drawn = redis.call('HRANDFIELD', P .. ':nodes:live', want.sample_k, 'WITHVALUES')
  local ids, packed = {}, {}
  for i = 1, #drawn, 2 do
    if capable(P, want, drawn[i]) then
      ids[#ids + 1] = drawn[i]
      packed[#packed + 1] = drawn[i + 1]
    end
  end
  return best_of(P, want, now, ids, packed, tally)
end
