-- Pools. A pool is named by its direction, "zh:en", or "text:zh:en" for jobs without speech, where
-- "text:zh:*" holds the nodes that translate into any language.
--
-- The members of a pool are entries, and a draw gives each entry the same chance (decision 35):
--   "<node id>"    a node that has no owner
--   "+<node id>"   the only node of an owner in this pool
--   "@<owner>"     an owner with several nodes in this pool
-- The nodes of an owner in a pool, be it one or several, are a group, named "zh:en@<owner>". A group
-- is stored as a pool is.
--
-- P:pools, hash: pool name -> number of entries
-- P:pools:owned, hash: group name -> number of nodes
-- P:pool:<pool or group name>:<shard>:nodes, set: at most `size` entries, or node ids of a group
-- P:node:<id>:pools, hash: pool name -> "<shard>", or "<shard>@<owner>" for its place in a group
-- P:owner:<owner>:pools, hash: pool name -> shard of the owner's entry
--
-- Invariant: every shard is full but the last. An entry that leaves is replaced by one of the last
-- shard. So the number of entries alone tells how many shards there are and how large each is, a
-- fair draw over them needs no scan, and a shard with room is always the last.

-- First bytes of the entries that stand for an owner.
local ONLY_NODE, OWNER = string.byte('+'), string.byte('@')

local function shard_key(P, name, shard)
  return P .. ':pool:' .. name .. ':' .. shard .. ':nodes'
end

local function pools_key(P, id)
  return P .. ':node:' .. id .. ':pools'
end
