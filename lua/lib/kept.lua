-- Kept results, and how many bytes they use. Every entry expires together with its result.
--
-- P:job:<id>:result, string: a JobResult of the contract
-- P:kept:ends, sorted set: job id -> when its result expires
-- P:kept:sizes, hash: job id -> '<bytes>:<attempt>:<tenant>'
-- P:kept:bytes, hash: '' -> bytes of all results, 't:<tenant>' -> bytes of the results of a tenant

-- How many entries one call removes at most.
local KEPT_ENDED_AT_ONCE = 200

local function kept_key(P, what)
  return P .. ':kept:' .. what
end

local function result_key(P, job)
  return P .. ':job:' .. job .. ':result'
end

-- The bytes and the attempt of a kept result, and its tenant; or 0.
local function kept_size(P, job)
  local entry = redis.call('HGET', kept_key(P, 'sizes'), job)
  if not entry then return 0 end
  local bytes, attempt, tenant = string.match(entry, '^(%d+):(%d+):(.*)$')
  return tonumber(bytes), attempt, tenant
end

-- Adds to the count of bytes.
local function kept_count(P, tenant, bytes)
  redis.call('HINCRBY', kept_key(P, 'bytes'), '', bytes)
  if redis.call('HINCRBY', kept_key(P, 'bytes'), 't:' .. tenant, bytes) <= 0 then
    redis.call('HDEL', kept_key(P, 'bytes'), 't:' .. tenant)
  end
end

-- Removes a result from the count. The result itself expires or is replaced.
local function kept_forget(P, job)
  local bytes, _, tenant = kept_size(P, job)
  if bytes > 0 then
    kept_count(P, tenant, -bytes)
    redis.call('HDEL', kept_key(P, 'sizes'), job)
    redis.call('ZREM', kept_key(P, 'ends'), job)
  end
end

-- Removes expired results from the count.
local function kept_settle(P, now)
  for _, job in ipairs(redis.call('ZRANGEBYSCORE', kept_key(P, 'ends'), '-inf', now, 'LIMIT', 0,
    KEPT_ENDED_AT_ONCE)) do
    kept_forget(P, job)
  end
end

-- Whether there is room for a result, which replaces the one that is kept for the job. most: bytes of
-- all results; one tenant may use a quarter of it.
local function kept_has_room(P, job, tenant, bytes, most)
  local used = redis.call('HMGET', kept_key(P, 'bytes'), '', 't:' .. tenant)
  local more = bytes - kept_size(P, job)
  return (tonumber(used[1]) or 0) + more <= most
    and (tonumber(used[2]) or 0) + more <= most / 4
end

-- Keeps a result, and replaces an earlier one of the job.
local function kept_put(P, job, tenant, attempt, result, ttl_ms, now)
  kept_forget(P, job)
  redis.call('SET', result_key(P, job), result, 'PX', ttl_ms)
  redis.call('ZADD', kept_key(P, 'ends'), now + ttl_ms, job)
  redis.call('HSET', kept_key(P, 'sizes'), job, #result .. ':' .. attempt .. ':' .. tenant)
  kept_count(P, tenant, #result)
  for _, what in ipairs({ 'ends', 'sizes', 'bytes' }) do
    redis.call('PEXPIRE', kept_key(P, what), ttl_ms)
  end
end
