-- What a tenant uses of what it may. A hold is a lease: one that has ended is not counted, so no crash
-- uses up a quota for longer than that. Jobs and speech of a tenant without limits are not recorded;
-- sessions always are, because the same set is the index by which a tenant's sessions are listed.
--
-- P:tenant:<tenant>:sessions, sorted set: session id -> when its record would be forgotten
-- P:tenant:<tenant>:jobs, sorted set: job id -> when its latest attempt is over in any case
-- P:tenant:<tenant>:audio, string: the time at which the speech placed so far is paid for, where
--   each minute pays for as much speech as the tenant may use in one
-- Who has no tenant shares these with all others who have none.

local MINUTE_MS = 60000
-- When another try is worth it: jobs end all the time, sessions at any time.
local JOB_RETRY_MS = 200
local SESSION_RETRY_MS = 5000
-- Ended holds that are removed at a time: a million that end together must not stop Redis.
local ENDED_AT_ONCE = 100

local function quota_key(P, tenant, what)
  return P .. ':tenant:' .. tenant .. ':' .. what
end

-- A refusal as a script returns it.
local function quota_refusal(what, used, limit, retry_ms)
  return { 'QUOTA_EXCEEDED', what, used, 'limit', limit, 'retry_ms', retry_ms }
end

-- Removes some of the holds that have ended. Each call adds fewer than this removes, except for those
-- of many sessions at once, which are known already: ended holds do not pile up.
local function quota_drop_ended(P, tenant, what, now)
  local key = quota_key(P, tenant, what)
  local ended = redis.call('ZRANGEBYSCORE', key, '-inf', now, 'LIMIT', 0, ENDED_AT_ONCE)
  if #ended > 0 then
    redis.call('ZREM', key, unpack(ended))
  end
end

-- The refusal of one more where as many are held as may be, or nil.
local function quota_full(P, tenant, what, limit, retry_ms, now)
  local key = quota_key(P, tenant, what)
  if redis.call('ZCARD', key) < limit then
    return nil
  end
  quota_drop_ended(P, tenant, what, now)
  local used = redis.call('ZCOUNT', key, '(' .. now, '+inf')
  return used >= limit and quota_refusal(what, used, limit, retry_ms) or nil
end

-- Holds places from now on, or goes on to hold them. At most 500 members: they are arguments.
local function quota_hold(P, tenant, what, members, hold_ms, now)
  local key, words = quota_key(P, tenant, what), {}
  for i, member in ipairs(members) do
    words[2 * i - 1], words[2 * i] = now + hold_ms, member
  end
  redis.call('ZADD', key, unpack(words))
  redis.call('PEXPIRE', key, hold_ms)
end

local function quota_let_go(P, tenant, what, member)
  redis.call('ZREM', quota_key(P, tenant, what), member)
end

-- How far ahead of the time the tenant's speech is, in ms; a minute: nothing is left.
local function quota_ahead(P, tenant, now)
  return math.max(0, (tonumber(redis.call('GET', quota_key(P, tenant, 'audio'))) or 0) - now)
end

-- The refusal if nothing is left of a minute's speech (limit: ms), or nil. A tenant that has anything
-- left may use more than that once, and then waits for longer. ahead: as quota_ahead said.
local function quota_mute(ahead, limit)
  if ahead < MINUTE_MS then
    return nil
  end
  local used = math.floor(ahead * limit / MINUTE_MS)
  return quota_refusal('audio', used, limit, ahead - MINUTE_MS + 1)
end

-- Charges speech to a tenant. ahead: as quota_ahead said.
local function quota_charge(P, tenant, ahead, audio_ms, limit, now)
  ahead = ahead + math.ceil(audio_ms * MINUTE_MS / limit)
  redis.call('SET', quota_key(P, tenant, 'audio'), string.format('%.0f', now + ahead), 'PX',
    math.max(1, ahead))
end
