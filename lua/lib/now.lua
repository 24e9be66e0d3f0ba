-- Time in milliseconds since the epoch, from Redis: the clocks of callers are never trusted.
local function now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
