-- keep_sessions: renews the lifetime of many sessions of one gateway, and says when audio last came.
--
-- Guarantees that a session which another gateway has taken over, or which is gone, is left as it
-- is and said to be so.
--
-- P:session:<id>, hash: lib/session.lua
-- P:tenant:<tenant>:sessions, sorted set: lib/quota.lua
--
-- KEYS 1 prefix
-- ARGV 1 ttl_ms, then for each session, of which there are at most 500: session, epoch,
--   last_chunk_ms (0: as it was)
-- Returns for each session, in order, 'ok', 'SESSION_NOT_FOUND' or 'SESSION_TAKEN_OVER'.
-- @include lib/session

local answers, kept = {}, {}
for i = 2, #ARGV, 3 do
  local key = session_key(KEYS[1], ARGV[i])
  local known = session_read(key)
  local refusal, tenant = session_refusal(known, ARGV[i + 1]), known[2]
  if not refusal then
    if tonumber(ARGV[i + 2]) > 0 then
      redis.call('HSET', key, 'last_chunk_ms', ARGV[i + 2])
    end
    redis.call('PEXPIRE', key, ARGV[1])
    kept[tenant] = kept[tenant] or {}
    table.insert(kept[tenant], ARGV[i])
  end
  answers[#answers + 1] = refusal or 'ok'
end
for tenant, sessions in pairs(kept) do
  session_index(KEYS[1], tenant, sessions, ARGV[1])
end
return answers
