-- Locality: a job that a draw gave to a node of another dispatcher may be moved to a node of the
-- dispatcher that asks, which saves the relay (decision 41).
--
-- A ledger keeps moves from changing how much work the nodes of a dispatcher get: a dispatcher that
-- has gained LEAD jobs by moves gains no more until others have taken jobs from its nodes. So in the
-- long run its nodes get what the draw gives them. A job is moved only from one node without an owner
-- to another, or from one owner's node to another's; each kind has its own account.
--
-- P:pool:<direction>:moved:<day>, hash: dispatcher instance -> jobs that moves brought to its nodes
--   without an owner, minus jobs that they took away, from -LEAD to LEAD; '@' .. instance: the same
--   of its nodes with an owner. It expires, and with it the accounts of instances that are gone.
-- @include lib/draw

-- More lets dispatchers with uneven traffic relay less; it also is the number of jobs that the nodes
-- of one dispatcher may get ahead of their share.
local LEAD = 64

-- A node is about as idle as another if it is at most this much more loaded; or, if both have jobs, if
-- one job less would make it as idle.
local ABOUT = 0.25

-- Samples that are drawn in search of a node nearby, besides the one of the draw.
local MORE_SAMPLES = 2

-- How often a node of a random owner is tried if the sample has all entries of the pool.
local TRIES = 32

local DAY_MS = 86400000

-- Whether node is about as idle as best.
local function about_as_idle(want, now, node, best)
  local beat_ms = want.stale_ms / 3
  local more = best.used > 0 and math.max(ABOUT, 1 / node.max) or ABOUT
  return node.used / node.max <= best.used / best.max + more
    and math.floor((now - node.beat) / beat_ms) <= math.floor((now - best.beat) / beat_ms)
end

-- The least loaded node nearby of those without an owner, if it is about as idle as the node that
-- was drawn. Returns id and settled record, or nil.
local function nearby_node(P, want, now, sample, node)
  if #sample.nodes == 0 then return nil end
  if not sample.drawn then
    sample.drawn, sample.first, sample.last = read(P, sample.nodes), 1, #sample.nodes
  end
  local id, found = best_of(P, want, now, sample.drawn, sample.first, sample.last, 'local')
  if id and about_as_idle(want, now, found, node) then return id, found end
  return nil
end

-- Tries entries of owners in random order, with one random node of each, until that node is nearby.
-- So an owner is found in proportion to the part of its nodes that are nearby, and gains nothing from
-- having nodes at many dispatchers. Load is compared with that of the owner's other nodes only.
-- Returns id and settled record, or nil. is_whole: the sample has all entries of the pool.
local function nearby_owned(P, want, now, sample, is_whole)
  local owned = sample.owned
  if sample.turn and not is_whole then
    -- The draw has put this entry into the sample, not chance.
    owned[sample.turn] = owned[#owned]
    owned[#owned] = nil
  end
  if #owned == 0 then return nil end
  local k = math.max(FEW, math.floor(want.sample_k / #owned))
  local turns, ids = list_owned(P, want, sample, k)
  local drawn = read(P, ids)
  for _ = 1, is_whole and TRIES or #turns do
    local at = math.random(#turns)
    local _, from, to = unpack(turns[at])
    if not is_whole then
      turns[at] = turns[#turns]
      turns[#turns] = nil
    end
    local one = math.random(from, to)
    local record = drawn.packed[one]
    if record and live_owner(record) == want.instance then
      local id, found = best_of(P, want, now, drawn, one, one)
      if id and from < to then
        local _, best = best_of(P, want, now, drawn, from, to)
        if not about_as_idle(want, now, found, best) then id = nil end
      end
      if id then return id, found end
    end
  end
  return nil
end

-- Looks for a node nearby, given the node that a draw chose and its sample. Returns id, settled
-- record, and the move for nearby_note; or nil.
local function nearby(P, want, now, sizes, total, node, sample)
  if want.instance == '' or node.owner == want.instance then return nil end
  local is_owned = sample.turn ~= nil
  local mark = is_owned and '@' or ''
  local move = { key = P .. ':pool:' .. want.pools[1] .. ':moved:' .. math.floor(now / DAY_MS),
    to = mark .. want.instance, from = mark .. node.owner }
  move.gained = tonumber(redis.call('HGET', move.key, move.to))
  if (move.gained or 0) >= LEAD then return nil end
  local k = is_owned and MANY or want.sample_k
  for more = 0, MORE_SAMPLES do
    if more > 0 then
      local pool, key = draw_shard(P, want, sizes, total)
      sample = draw_entries(pool, key, k)
    end
    local is_whole = #sample.nodes + #sample.owned == total
    local id, found
    if is_owned then
      id, found = nearby_owned(P, want, now, sample, is_whole)
    else
      id, found = nearby_node(P, want, now, sample, node)
    end
    if id then return id, found, move end
    if is_whole then return nil end
  end
  return nil
end

-- Draws from all pools in want.pools, and moves the job if it may be. Returns id, settled record, and
-- the move, if any, for nearby_note; or nil.
local function draw_nearby(P, want, now, sizes, total, tally)
  want.defers = want.instance ~= ''
  local id, node, sample = draw_from_pools(P, want, now, sizes, total, tally)
  want.defers = false
  if not id then return nil end
  local near, found, move = nearby(P, want, now, sizes, total, node, sample)
  if near then return near, found, move end
  if node.is_unsettled then
    slots_settle(P, id, node, now)
    if is_full(node.used, node.max, node.kept, now) then
      -- The cached count was wrong. Correct it and draw again.
      live_put(P, id, node)
      id, node = draw_from_pools(P, want, now, sizes, total, tally)
    end
  end
  return id, node
end

-- Records a move that was made.
local function nearby_note(move)
  redis.call('HINCRBY', move.key, move.to, 1)
  if redis.call('HINCRBY', move.key, move.from, -1) < -LEAD then
    redis.call('HSET', move.key, move.from, -LEAD)
  end
  if not move.gained then
    redis.call('PEXPIRE', move.key, 2 * DAY_MS)
  end
end
