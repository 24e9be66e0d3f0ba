-- Pools. The name of a pool is its direction: "zh:en", or "text:zh:en" for jobs without speech
-- output; "text:zh:*" contains the nodes that translate into any language.
--
-- The members of a pool are entries, which all have the same chance in a draw (decision 35):
--   "<node id>"    a node without an owner
--   "+<node id>"   the only node of an owner in this pool
--   "@<owner>"     an owner with several nodes in this pool
-- The nodes of one owner in a pool are a group with the name "zh:en@<owner>". A group is stored like
-- a pool.
--
-- P:pools, hash: pool name -> number of entries
-- P:pools:owned, hash: group name -> number of nodes
-- P:pool:<pool or group name>:<shard>:nodes, set: at most `size` entries, or node ids of a group
-- P:node:<id>:pools, hash: pool name -> "<shard>", or "<shard>@<owner>" for its place in a group
-- P:owner:<owner>:pools, hash: pool name -> shard of the owner's entry
--
-- Invariant: all shards except the last are full. An entry that leaves is replaced by one of the last
-- shard. So the number of shards and their sizes follow from the number of entries, a fair draw needs
-- no scan, and only the last shard has room.

-- First bytes of the entries that belong to an owner.
local ONLY_NODE, OWNER = string.byte('+'), string.byte('@')

local function shard_key(P, name, shard)
  return P .. ':pool:' .. name .. ':' .. shard .. ':nodes'
end

local function pools_key(P, id)
  return P .. ':node:' .. id .. ':pools'
end
