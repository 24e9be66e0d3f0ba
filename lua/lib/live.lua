-- The frequently changing state of a node, packed into one field of one hash, so that a draw of
-- twenty candidates needs one command instead of sixty.
--
-- P:nodes:live, hash: node id -> record:
--   beat       time of the last heartbeat
--   epoch      identifies the node's current connection
--   next_end   no lease of this node ends before this time (a lower bound; 0: unknown)
--   load       as the node reports it, 0 to 1
--   ejected    time until which the node is not chosen because it failed too often
--   kept       time until which its last free slot is kept for a turn that waits for the node
--   used       number of leases: a cache of the two sorted sets, which are authoritative (slots.lua)
--   max        max_concurrent_jobs
--   health     codes.lua
--   drained    DRAINED: an operator has drained the node; MOVING: it leaves for another cell as soon
--              as it is idle, and gets no jobs but those that must have it (leave_cell.lua); 0: neither
--   stages     bit mask of StageKind
--   failures   failures since the last success, at most 255
--   ejections  ejections since the last success, at most 255
--   blamed     hash of the session whose job failed last (record.lua)
--   owner      id of the dispatcher instance that has its stream
--   address    address of that instance for other dispatchers
local LIVE_FORMAT = '<ddddddHHBBBBBI4B'
local LIVE_FIXED = 62 -- bytes of the above, the last one the length of the owner; then owner, address

local function live_owner(packed)
  return string.sub(packed, LIVE_FIXED + 1, LIVE_FIXED + string.byte(packed, LIVE_FIXED))
end

-- The record as a table with the names above.
local function live_unpack(packed)
  local node, length = {}, nil
  node.beat, node.epoch, node.next_end, node.load, node.ejected, node.kept, node.used, node.max,
    node.health, node.drained, node.stages, node.failures, node.ejections,
    node.blamed, length = struct.unpack(LIVE_FORMAT, packed)
  node.owner = live_owner(packed)
  node.address = string.sub(packed, LIVE_FIXED + length + 1)
  return node
end

local function live_pack(node)
  return struct.pack(LIVE_FORMAT, node.beat, node.epoch, node.next_end, node.load, node.ejected,
    node.kept, node.used, node.max, node.health, node.drained, node.stages,
    node.failures, node.ejections, node.blamed, #node.owner) .. node.owner .. node.address
end

-- The record of a node, or nil if the node is unknown.
local function live_get(P, id)
  local packed = redis.call('HGET', P .. ':nodes:live', id)
  return packed and live_unpack(packed) or nil
end

local function live_put(P, id, node)
  redis.call('HSET', P .. ':nodes:live', id, live_pack(node))
end
