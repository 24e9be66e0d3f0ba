-- Quotas of tenants. Usage is counted by holds that expire, so a crash cannot use up a quota for
-- longer than that. Jobs and speech of a tenant without limits are not recorded; sessions and rooms
-- always are, because the same sets are the indexes for listing those of a tenant.
--
-- P:tenant:<tenant>:sessions, sorted set: session id -> when its record expires
-- P:tenant:<tenant>:rooms, sorted set: room id -> when its record expires
-- P:tenant:<tenant>:jobs, sorted set: job id -> when its latest attempt ends at the latest
-- P:tenant:<tenant>:audio, string: the time at which the speech so far is used up, if every minute
--   allows as much speech as the tenant may use per minute
-- Callers without a tenant share the quotas of the tenant ''.

local MINUTE_MS = 60000
-- When to retry: jobs end frequently, sessions at any time.
local JOB_RETRY_MS = 200
local SESSION_RETRY_MS = 5000
-- Expired holds that one call removes: a million that expire together must not block Redis.
local ENDED_AT_ONCE = 100

local function quota_key(P, tenant, what)
  return P .. ':tenant:' .. tenant .. ':' .. what
end

-- A refusal as a script returns it.
local function quota_refusal(what, used, limit, retry_ms)
  return { 'QUOTA_EXCEEDED', what, used, 'limit', limit, 'retry_ms', retry_ms }
end

-- Removes some of the expired holds of a set. A call adds fewer holds than this removes, except for
-- the renewal of many sessions, whose holds exist already. So expired holds do not accumulate.
local function hold_drop_ended(key, now)
  local ended = redis.call('ZRANGEBYSCORE', key, '-inf', now, 'LIMIT', 0, ENDED_AT_ONCE)
  if #ended > 0 then
    redis.call('ZREM', key, unpack(ended))
  end
end

-- How many holds of a set have not expired.
local function quota_used(P, tenant, what, now)
  return redis.call('ZCOUNT', quota_key(P, tenant, what), '(' .. now, '+inf')
end

-- The refusal if the limit is reached, or nil. elsewhere: what counts in other cells; nil for nothing.
local function quota_full(P, tenant, what, limit, retry_ms, now, elsewhere)
  local key = quota_key(P, tenant, what)
  elsewhere = elsewhere or 0
  if redis.call('ZCARD', key) + elsewhere < limit then
    return nil
  end
  hold_drop_ended(key, now)
  local used = quota_used(P, tenant, what, now) + elsewhere
  return used >= limit and quota_refusal(what, used, limit, retry_ms) or nil
end

-- Adds or renews holds of a set, at most 500 because they are arguments of one command.
local function hold_until(key, members, ends)
  local words = {}
  for i, member in ipairs(members) do
    words[2 * i - 1], words[2 * i] = ends, member
  end
  redis.call('ZADD', key, unpack(words))
end

local function quota_hold(P, tenant, what, members, hold_ms, now)
  local key = quota_key(P, tenant, what)
  hold_until(key, members, now + hold_ms)
  redis.call('PEXPIRE', key, hold_ms)
end

local function quota_let_go(P, tenant, what, member)
  redis.call('ZREM', quota_key(P, tenant, what), member)
end

-- How far the tenant's speech is ahead of the clock, in ms; a minute: nothing is left.
local function quota_ahead(P, tenant, now)
  return math.max(0, (tonumber(redis.call('GET', quota_key(P, tenant, 'audio'))) or 0) - now)
end

-- The refusal if nothing is left of a minute's speech (limit: ms), or nil. A tenant that has anything
-- left may exceed the limit once, and then waits longer. ahead: from quota_ahead.
local function quota_mute(ahead, limit)
  if ahead < MINUTE_MS then
    return nil
  end
  local used = math.floor(ahead * limit / MINUTE_MS)
  return quota_refusal('audio', used, limit, ahead - MINUTE_MS + 1)
end

-- Charges speech to a tenant. ahead: from quota_ahead.
local function quota_charge(P, tenant, ahead, audio_ms, limit, now)
  ahead = ahead + math.ceil(audio_ms * MINUTE_MS / limit)
  redis.call('SET', quota_key(P, tenant, 'audio'), string.format('%.0f', now + ahead), 'PX',
    math.max(1, ahead))
end
