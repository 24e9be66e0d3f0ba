-- The draw: picks a bounded number of a pool's entries at random and chooses a node of one of them.
--
-- The order of turns is random: each owner, and each node without an owner, has the same chance,
-- however many nodes and slots an owner has (decision 35). Load decides only among the nodes of one
-- owner, and among the nodes without an owner. If no node of a turn has room, another turn is drawn.
-- The dispatcher that asks makes no difference here (lib/nearby.lua).
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

-- Draws at most k entries of a shard, by its key. Returns a sample:
--   pool
--   nodes                nodes without an owner
--   owned                entries of owners
--   drawn, first, last   records of the nodes without an owner, once they are read, and their indexes
--   turn                 index in `owned` of the entry that was chosen; nil: a node without an owner
local function draw_entries(pool, key, k)
  local nodes, owned = redis.call('SRANDMEMBER', key, k), {}
  for i = #nodes, 1, -1 do
    local kind = byte(nodes[i])
    if kind == ONLY_NODE or kind == OWNER then
      owned[#owned + 1] = nodes[i]
      nodes[i] = nodes[#nodes]
      nodes[#nodes] = nil
    end
  end
  return { pool = pool, nodes = nodes, owned = owned }
end

-- Draws at most k nodes of a group of `size` nodes. Returns their ids.
local function draw_group(P, want, group, size, k)
  local shard = math.floor(math.random(0, size - 1) / want.size)
  return redis.call('SRANDMEMBER', shard_key(P, group, shard), k)
end

-- Gives the first turn to a random entry, and chooses a node of that turn. Returns id and settled
-- record; or nil, nil and the turn, if other nodes of this turn may have room. is_part: these are
-- only some of the entries. If they are all entries, nodes without an owner are not checked here.
local function first_turn(P, want, now, sample, is_part)
  local nodes, owned = sample.nodes, sample.owned
  local at = math.random(#nodes + #owned) - #nodes
  if at <= 0 then
    if not is_part then return nil, nil, NODES end
    local drawn = read(P, nodes)
    sample.drawn, sample.first, sample.last = drawn, 1, #nodes
    local id, node, any_ejected = best_of(P, want, now, drawn, 1, #nodes, 'idle')
    return id, node, not any_ejected and NODES or nil
  end
  local entry = owned[at]
  sample.turn = at
  if byte(entry) == ONLY_NODE then
    return best_of(P, want, now, read(P, { string.sub(entry, 2) }), 1, 1)
  end
  local group = sample.pool .. entry
  local size = tonumber(redis.call('HGET', P .. ':pools:owned', group))
  local drawn = read(P, draw_group(P, want, group, size, FEW))
  local rule = size > FEW and 'idle' or nil
  local id, node, any_ejected = best_of(P, want, now, drawn, 1, #drawn.ids, rule)
  if id or any_ejected or not rule then return id, node end
  drawn = read(P, draw_group(P, want, group, size, want.sample_k))
  return best_of(P, want, now, drawn, 1, #drawn.ids)
end

-- Lists the nodes of owners by turn. Returns the turns, with the first and last index of their
-- nodes; the ids; and the groups of which not all nodes were drawn, with their sizes. Turns and groups
-- begin with the index of their entry. k: how many nodes of an owner are drawn.
local function list_owned(P, want, sample, k)
  local turns, ids, groups, more = {}, {}, {}, {}
  local owned = sample.owned
  for i = 1, #owned do
    if byte(owned[i]) == ONLY_NODE then
      ids[#ids + 1] = string.sub(owned[i], 2)
      turns[i] = { i, #ids, #ids }
    else
      groups[#groups + 1] = sample.pool .. owned[i]
      turns[i] = { i }
    end
  end
  if #groups > 0 then
    local sizes, at = redis.call('HMGET', P .. ':pools:owned', unpack(groups)), 0
    for i = 1, #owned do
      if not turns[i][2] then
        at = at + 1
        local size, from = tonumber(sizes[at]), #ids + 1
        local nodes = draw_group(P, want, groups[at], size, k)
        for j = 1, #nodes do ids[#ids + 1] = nodes[j] end
        turns[i][2], turns[i][3] = from, #ids
        if size > #nodes then more[#more + 1] = { i, groups[at], size } end
      end
    end
  end
  return turns, ids, more
end

-- Tries turns in random order until one has a node that can be chosen. Returns id and settled record,
-- or nil. turn: which turn comes first (from first_turn), or nil.
local function take_turns(P, want, now, sample, tally, turn)
  local nodes = #sample.nodes
  if #sample.owned == 0 then
    local drawn = read(P, sample.nodes)
    sample.drawn, sample.first, sample.last = drawn, 1, nodes
    local id, node = best_of(P, want, now, drawn, 1, nodes, 'share')
    if not id then count_all(want, now, drawn, tally) end
    return id, node
  end

  -- The nodes without an owner come last, and have as many turns as there are nodes.
  local k = math.max(1, math.floor(want.sample_k / (nodes + #sample.owned)))
  local turns, ids, more = list_owned(P, want, sample, k)
  sample.first = #ids + 1
  for i = 1, nodes do ids[#ids + 1] = sample.nodes[i] end
  local drawn = read(P, ids)
  sample.drawn, sample.last = drawn, #ids
  while #turns + nodes > 0 do
    local at = turn == NODES and nodes > 0 and #turns + 1 or math.random(#turns + nodes)
    local from, to = sample.first, sample.last
    if at > #turns then
      sample.turn, nodes = nil, 0
    else
      sample.turn, from, to = unpack(turns[at])
      turns[at] = turns[#turns]
      turns[#turns] = nil
    end
    local id, node = best_of(P, want, now, drawn, from, to, 'share')
    if id then return id, node end
  end
  count_all(want, now, drawn, tally)
  -- An owner may have room in nodes that were not drawn.
  for i = 1, math.min(#more, MAX_SHARDS) do
    local group, size
    sample.turn, group, size = unpack(more[i])
    local others = read(P, draw_group(P, want, group, size, want.sample_k))
    local id, node = best_of(P, want, now, others, 1, #others.ids)
    if id then return id, node end
  end
  return nil
end

-- Draws from a shard of a pool, by its key. few: how many entries are checked first. Returns id,
-- settled record, and the sample of which it was chosen; or nil.
local function draw_from_shard(P, want, now, pool, key, few, tally)
  local sample = draw_entries(pool, key, few)
  if #sample.nodes + #sample.owned == 0 then return nil end
  local is_part = few < want.sample_k
  local id, node, turn = first_turn(P, want, now, sample, is_part)
  if id then return id, node, sample end
  if is_part then sample = draw_entries(pool, key, want.sample_k) end
  id, node = take_turns(P, want, now, sample, tally, turn)
  return id, node, sample
end

-- The sizes of the pools in want.pools, and their sum.
local function pool_sizes(P, want)
  local sizes, total = redis.call('HMGET', P .. ':pools', unpack(want.pools)), 0
  for i = 1, #sizes do
    sizes[i] = tonumber(sizes[i]) or 0
    total = total + sizes[i]
  end
  return sizes, total
end

-- A random shard of the pools in want.pools, in proportion to its size: its pool and its key.
local function draw_shard(P, want, sizes, total)
  local at, number = math.random(0, total - 1), 1
  while at >= sizes[number] do
    at = at - sizes[number]
    number = number + 1
  end
  local pool = want.pools[number]
  return pool, shard_key(P, pool, math.floor(at / want.size))
end

-- Draws from all pools in want.pools, as if they were one. Returns id, settled record, and the sample
-- of which it was chosen; or nil.
local function draw_from_pools(P, want, now, sizes, total, tally)
  local seen, rounds = {}, total > 0 and MAX_SHARDS or 0
  for round = 1, rounds do
    local pool, key = draw_shard(P, want, sizes, total)
    if not seen[key] then
      seen[key] = true
      local few = round == 1 and total > MANY and math.min(FEW, want.sample_k) or want.sample_k
      local id, node, sample = draw_from_shard(P, want, now, pool, key, few, tally)
      if id then return id, node, sample end
    end
  end
  return nil
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
