-- Since when heartbeats have arrived without a gap.
--
-- A node's silence means something only while its heartbeats could be stored. They cannot while Redis
-- is away, while no pool service runs, or while no dispatcher reaches one, and no process can know
-- how long that lasted before it started. So the store itself keeps the record.
--
-- P:hearing:since, string: time of the first heartbeat after the last gap
-- P:hearing:last, string: time of the last heartbeat of any node
--
-- A gap is half of heartbeat_stale_ms. Nodes beat at least every third of it, so one node is enough
-- to keep the record going, and a shorter interruption does not make any node look stale.

local function is_gap(last, now, stale_ms)
  return not last or math.abs(now - tonumber(last)) > stale_ms / 2
end

-- Notes that heartbeats arrived.
local function hearing_note(P, now, stale_ms)
  local last = redis.call('SET', P .. ':hearing:last', now, 'GET')
  if is_gap(last, now, stale_ms) then
    redis.call('SET', P .. ':hearing:since', now)
  end
end

-- The time from which silence counts: now, if nothing is heard at present.
local function hearing_since(P, now, stale_ms)
  if is_gap(redis.call('GET', P .. ':hearing:last'), now, stale_ms) then
    return now
  end
  return tonumber(redis.call('GET', P .. ':hearing:since')) or now
end
