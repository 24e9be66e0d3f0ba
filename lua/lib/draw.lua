-- The draw: picks a bounded number of a pool's entries at random and chooses a node of one of them.
--
-- The order of turns is random: each owner, and each node without an owner, has the same chance,
-- however many nodes and slots an owner has (decision 35). Load decides only among the nodes of one
-- owner, and among the nodes without an owner. If no node of a turn has room, another turn is drawn.
-- @include lib/pools
-- @include lib/candidates

-- Shards that a draw tries before it gives up. Another shard is tried only if the ones before had no
-- room. This keeps the choice fair: the first shard is drawn in proportion to its size, and all
-- entries within a shard have the same chance.
local MAX_SHARDS = 3

-- Entries, or nodes of an owner, that are checked first. If one of these nodes is idle, no other
-- could be better, and the rest is skipped. Pools with at most MANY entries are read at once.
local FEW, MANY = 4, 8

-- The turn of the nodes without an owner.
local NODES = 1

local byte = string.byte

-- Reads the records of nodes, in the form that best_of takes.
local function read(P, ids)
  return { ids = ids, packed = redis.call('HMGET', P .. ':nodes:live', unpack(ids)) }
end

-- Removes the entries of owners from a list and returns them. Nodes without an owner are left.
local function split(entries)
  local owned = {}
  for i = #entries, 1, -1 do
    local kind = byte(entries[i])
    if kind == ONLY_NODE or kind == OWNER then
      owned[#owned + 1] = entries[i]
      entries[i] = entries[#entries]
      entries[#entries] = nil
    end
  end
  return owned
end

-- Draws at most k nodes of a group of `size` nodes. Returns their ids.
local function draw_group(P, want, group, size, k)
  local shard = math.floor(math.random(0, size - 1) / want.size)
  return redis.call('SRANDMEMBER', shard_key(P, group, shard), k)
end

-- Gives the first turn to a random entry, and chooses a node of that turn. Returns id and settled
-- record; or nil, nil and the turn, if other nodes of this turn may have room. is_part: these are
-- only some of the entries; this function may then modify the list. If they are all entries, nodes
-- without an owner are not checked here.
local function first_turn(P, want, now, pool, entries, is_part)
  local entry = entries[math.random(#entries)]
  local kind = byte(entry)
  if kind == ONLY_NODE then
    return best_of(P, want, now, read(P, { string.sub(entry, 2) }), 1, 1)
  elseif kind == OWNER then
    local group = pool .. entry
    local size = tonumber(redis.call('HGET', P .. ':pools:owned', group))
    local drawn = read(P, draw_group(P, want, group, size, FEW))
    local rule = size > FEW and 'idle' or nil
    local id, node, any_ejected = best_of(P, want, now, drawn, 1, #drawn.ids, rule)
    if id or any_ejected or not rule then return id, node end
    drawn = read(P, draw_group(P, want, group, size, want.sample_k))
    return best_of(P, want, now, drawn, 1, #drawn.ids)
  elseif not is_part then
    return nil, nil, NODES
  end
  split(entries)
  local id, node, any_ejected = best_of(P, want, now, read(P, entries), 1, #entries, 'idle')
  return id, node, not any_ejected and NODES or nil
end

-- Lists the nodes of owners by turn. Returns the turns, each the index of a node, or the first and
-- last index of several; the ids; and the groups of which not all nodes were drawn, with their sizes.
-- k: how many nodes of an owner are drawn.
local function list_owned(P, want, pool, owned, k)
  local turns, ids, groups, more = {}, {}, {}, {}
  for i = 1, #owned do
    if byte(owned[i]) == ONLY_NODE then
      ids[#ids + 1] = string.sub(owned[i], 2)
      turns[#turns + 1] = #ids
    else
      groups[#groups + 1] = pool .. owned[i]
    end
  end
  if #groups > 0 then
    local sizes = redis.call('HMGET', P .. ':pools:owned', unpack(groups))
    for i = 1, #groups do
      local size, from = tonumber(sizes[i]), #ids + 1
      local nodes = draw_group(P, want, groups[i], size, k)
      for j = 1, #nodes do ids[#ids + 1] = nodes[j] end
      turns[#turns + 1] = { from, #ids }
      if size > #nodes then more[#more + 1] = { groups[i], size } end
    end
  end
  return turns, ids, more
end

-- Tries turns in random order until one has a node that can be chosen. Returns id and settled record,
-- or nil. Modifies the list of entries. turn: which turn comes first (from first_turn), or nil.
local function take_turns(P, want, now, pool, entries, tally, turn)
  local k = math.max(1, math.floor(want.sample_k / #entries))
  local owned = split(entries)
  if #owned == 0 then
    local drawn = read(P, entries)
    local id, node = best_of(P, want, now, drawn, 1, #entries, 'share')
    if not id then count_all(want, now, drawn, tally) end
    return id, node
  end

  -- The nodes without an owner come last, and have as many turns as there are nodes.
  local turns, ids, more = list_owned(P, want, pool, owned, k)
  local first, nodes = #ids + 1, #entries
  for i = 1, nodes do ids[#ids + 1] = entries[i] end
  local drawn = read(P, ids)
  while #turns + nodes > 0 do
    local at = turn == NODES and nodes > 0 and #turns + 1 or math.random(#turns + nodes)
    local from, to = turns[at], turns[at]
    if at > #turns then
      from, to, nodes = first, #ids, 0
    else
      if type(from) == 'table' then from, to = from[1], from[2] end
      turns[at] = turns[#turns]
      turns[#turns] = nil
    end
    local id, node = best_of(P, want, now, drawn, from, to, 'share')
    if id then return id, node end
  end
  count_all(want, now, drawn, tally)
  -- An owner may have room in nodes that were not drawn.
  for i = 1, math.min(#more, MAX_SHARDS) do
    local others = read(P, draw_group(P, want, more[i][1], more[i][2], want.sample_k))
    local id, node = best_of(P, want, now, others, 1, #others.ids)
    if id then return id, node end
  end
  return nil
end

-- Draws from a shard of a pool, by its key. few: how many entries are checked first. Returns id and
-- settled record, or nil.
local function draw_from_shard(P, want, now, pool, key, few, tally)
  local entries = redis.call('SRANDMEMBER', key, few)
  if #entries == 0 then return nil end
  local id, node, turn = first_turn(P, want, now, pool, entries, few < want.sample_k)
  if id then return id, node end
  if few < want.sample_k then entries = redis.call('SRANDMEMBER', key, want.sample_k) end
  return take_turns(P, want, now, pool, entries, tally, turn)
end

-- Draws from all pools in want.pools, as if they were one. Returns id and record, or nil; and how
-- many entries the pools have.
local function draw_from_pools(P, want, now, tally)
  local sizes = redis.call('HMGET', P .. ':pools', unpack(want.pools))
  local total = 0
  for i = 1, #sizes do
    sizes[i] = tonumber(sizes[i]) or 0
    total = total + sizes[i]
  end
  local seen, rounds = {}, total > 0 and MAX_SHARDS or 0
  for round = 1, rounds do
    local at, number = math.random(0, total - 1), 1
    while at >= sizes[number] do
      at = at - sizes[number]
      number = number + 1
    end
    local pool, few = want.pools[number], want.sample_k
    local key = shard_key(P, pool, math.floor(at / want.size))
    if not seen[key] then
      seen[key] = true
      if round == 1 and few > FEW and total > MANY then few = FEW end
      local id, node = draw_from_shard(P, want, now, pool, key, few, tally)
      if id then return id, node, total end
    end
  end
  return nil, nil, total
end

local function speaks(languages, code)
  return languages and string.find(languages, '"' .. code .. '"', 1, true) ~= nil
end

-- Whether the node belongs in one of the pools in want.pools, by its declared capabilities.
local function capable(P, want, id)
  local has = redis.call('HMGET', P .. ':node:' .. id, 'asr_langs', 'semantic_langs', 'tts_langs',
    'nmt_pairs')
  return speaks(has[1], want.src)
    and speaks(has[2], want.src)
    and (has[4] == '[]' or speaks(has[4], want.src .. ':' .. want.tgt))
    and (not want.tts or speaks(has[3], want.tgt))
end

-- The fallback: draws from all nodes by capability, for the time between the registration of a node
-- and its entry in a pool. An owner with many nodes is drawn more often here.
local function draw_from_all(P, want, now, tally)
  local drawn = redis.call('HRANDFIELD', P .. ':nodes:live', want.sample_k, 'WITHVALUES')
  local ids, packed = {}, {}
  for i = 1, #drawn, 2 do
    if capable(P, want, drawn[i]) then
      ids[#ids + 1] = drawn[i]
      packed[#packed + 1] = drawn[i + 1]
    end
  end
  local candidates = { ids = ids, packed = packed }
  local id, node = best_of(P, want, now, candidates, 1, #ids, 'share')
  if not id then count_all(want, now, candidates, tally) end
  return id, node
end
