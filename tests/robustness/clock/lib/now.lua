-- Redis' own time, moved by as much as a test says.
--
-- P:test:jump_ms, string: how far; absent: not at all
local function now_ms()
  local time = redis.call('TIME')
  local jump = tonumber(redis.call('GET', KEYS[1] .. ':test:jump_ms')) or 0
  return time[1] * 1000 + math.floor(time[2] / 1000) + jump
end
