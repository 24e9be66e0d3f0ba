-- keep_sessions: renews many sessions of one gateway, and records when audio last came.
--
-- Guarantees that a session which another gateway has taken over, or which is gone, is not changed.
--
-- P:session:<id>, hash, and P:sessions, sorted set: lib/session.lua
-- P:tenant:<tenant>:sessions, sorted set: lib/quota.lua
--
-- @setting ttl_ms digits
-- @each sessions.id text            at most 500 sessions
-- @each sessions.epoch digits
-- @each sessions.last_chunk_ms number    0: unchanged
-- Returns for each session, in order, 'ok', 'SESSION_NOT_FOUND' or 'SESSION_TAKEN_OVER'.
-- @include lib/session

local answers, kept, all = {}, {}, {}
for i, session in ipairs(sessions.id) do
  local key, last_chunk_ms = session_key(P, session), sessions.last_chunk_ms[i]
  local known = session_read(key)
  local refusal, tenant = session_refusal(known, sessions.epoch[i]), known[2]
  if not refusal then
    if last_chunk_ms > 0 then
      redis.call('HSET', key, 'last_chunk_ms', last_chunk_ms)
    end
    redis.call('PEXPIRE', key, ttl_ms)
    kept[tenant] = kept[tenant] or {}
    table.insert(kept[tenant], session)
    table.insert(all, session)
  end
  answers[#answers + 1] = refusal or 'ok'
end
local now = now_ms()
for tenant, ids in pairs(kept) do
  session_index(P, tenant, ids, ttl_ms, now)
end
if #all > 0 then
  session_list(P, all, ttl_ms, now)
end
return answers
