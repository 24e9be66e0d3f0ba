-- keep_sessions: renews the lifetime of many sessions of one gateway.
--
-- Guarantees that a session which another gateway has taken over, or which is gone, is left as it
-- is and said to be so.
--
-- P:session:<id>, hash: lib/session.lua
--
-- KEYS 1 prefix
-- ARGV 1 ttl_ms, then pairs of a session and its epoch, at most 500
-- Returns for each pair, in order, 'ok', 'SESSION_NOT_FOUND' or 'SESSION_TAKEN_OVER'.
-- @include lib/session

local answers, counted = {}, {}
for i = 2, #ARGV, 2 do
  local key = session_key(KEYS[1], ARGV[i])
  local known = session_read(key)
  local refusal, tenant = session_refusal(known, ARGV[i + 1]), known[2]
  if not refusal then
    redis.call('PEXPIRE', key, ARGV[1])
    if tenant then
      counted[tenant] = counted[tenant] or {}
      table.insert(counted[tenant], ARGV[i])
    end
  end
  answers[#answers + 1] = refusal or 'ok'
end
for tenant, sessions in pairs(counted) do
  quota_hold(KEYS[1], tenant, 'sessions', sessions, tonumber(ARGV[1]), now_ms())
end
return answers
