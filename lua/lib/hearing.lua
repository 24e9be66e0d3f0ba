-- The time since which heartbeats have arrived without a gap.
--
-- The silence of a node is significant only while its heartbeats can be stored. They cannot while
-- Redis is away, no pool service runs, or no dispatcher reaches a pool service, and a process cannot
-- know how long that lasted before it started. So Redis itself keeps the record.
--
-- P:hearing:since, string: time of the first heartbeat after the last gap
-- P:hearing:last, string: time of the last heartbeat of any node
--
-- A gap is longer than half of heartbeat_stale_ms. Nodes send heartbeats at least every third of it,
-- so one node is enough to prevent a gap, and a shorter interruption makes no node stale.

local function is_gap(last, now, stale_ms)
  return not last or math.abs(now - tonumber(last)) > stale_ms / 2
end

-- Records that heartbeats arrived.
local function hearing_note(P, now, stale_ms)
  local last = redis.call('SET', P .. ':hearing:last', now, 'GET')
  if is_gap(last, now, stale_ms) then
    redis.call('SET', P .. ':hearing:since', now)
  end
end

-- The time from which silence counts: now, if no heartbeats arrive at present.
local function hearing_since(P, now, stale_ms)
  if is_gap(redis.call('GET', P .. ':hearing:last'), now, stale_ms) then
    return now
  end
  return tonumber(redis.call('GET', P .. ':hearing:since')) or now
end
