-- Time in milliseconds since the epoch, from Redis: callers' clocks are never trusted.
local function now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
