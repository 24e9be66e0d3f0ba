-- The record of a session, by which any gateway can take it up.
--
-- P:session:<id>, hash, with a lifetime that whoever has the session renews:
--   epoch          1, and one more with every take-over: a gateway with another one is not heard
--   gateway        the instance that has the session; '' while none does
--   tries          how often its client had tried to resume when it last did so; 0: not told
--   token          SHA-256 of the resume token, in hex; without it the session has ended
--   opened         a NewSession of the contract
--   tenant         that of the NewSession; the session is one of that tenant's set (quota.lua)
--   opened_ms, last_chunk_ms (0: none yet)
--   next           index that the next utterance will have
--   seen           how many results the client has seen
--   acked          every chunk below this seq is safe; the client may have forgotten it
--   results, missing    how many indexes were delivered as the one and as the other
--   low            no cut below this index is kept; it only rises
--   cut:<index>    a Cut (session_record.proto) whose result the client has not seen, or whose chunks
--                  it may still send again
--
-- Lifetimes are time, too: the clock is included for all, so that tests can put theirs in its place.
-- @include lib/now
-- @include lib/quota

-- Fields written or deleted by one command: unpack's arguments live on Lua's stack.
local FIELDS_AT_ONCE = 1000
-- No more than a record has fields in any case.
local FEW_CUTS = 10

local function session_key(P, session)
  return P .. ':session:' .. session
end

-- What a change of the record has to know of it: epoch, tenant, next, seen, low, acked.
local function session_read(key)
  return redis.call('HMGET', key, 'epoch', 'tenant', 'next', 'seen', 'low', 'acked')
end

-- Why a gateway with this epoch must not change the record, or nil where it may. A record that is
-- older than the gateway's hold is what a failover has left: the gateway has to write its own anew.
-- A record without a tenant is what end_session leaves. known: as session_read said.
local function session_refusal(known, epoch)
  local current = known[1]
  if not current or tonumber(current) < tonumber(epoch) then
    return 'SESSION_NOT_FOUND'
  end
  if tonumber(current) > tonumber(epoch) or not known[2] then
    return 'SESSION_TAKEN_OVER'
  end
  return nil
end

-- Renews the places of sessions, at most 500, among those of their tenant.
local function session_index(P, tenant, sessions, ttl_ms)
  local now = now_ms()
  quota_drop_ended(P, tenant, 'sessions', now)
  quota_hold(P, tenant, 'sessions', sessions, tonumber(ttl_ms), now)
end

-- Renews a record's lifetime, and with it the session's place among those of its tenant.
local function session_renew(P, session, tenant, ttl_ms)
  redis.call('PEXPIRE', session_key(P, session), ttl_ms)
  session_index(P, tenant, { session }, ttl_ms)
end

local function session_many(command, key, words)
  for from = 1, #words, FIELDS_AT_ONCE do
    redis.call(command, key, unpack(words, from, math.min(from + FIELDS_AT_ONCE - 1, #words)))
  end
end

-- The fields that the cuts from one index up to another may have.
local function session_cuts(key, first, stop)
  local names = {}
  if stop - first > FEW_CUTS and stop - first > redis.call('HLEN', key) then
    -- A record that was written anew may leap over any number of indexes, which must not be named.
    for _, name in ipairs(redis.call('HKEYS', key)) do
      local index = tonumber(string.match(name, '^cut:(%d+)$'))
      if index and first <= index and index < stop then
        names[#names + 1] = name
      end
    end
  else
    for index = first, stop - 1 do
      names[#names + 1] = 'cut:' .. index
    end
  end
  return names
end

-- Brings a record up to date, and forgets every cut that nobody needs and the lowest beyond `keep`.
-- The work is that of the cuts which come and go: it does not grow with the session's age.
--
-- known: as session_read said
-- fields: names and values to write as they are
-- next_index, seen, acked: where the record, or a cut, knows of more, that stays
-- first: the first cut that is needed
-- at: from here on ARGV has pairs of an index and its cut
local function session_update(key, known, fields, next_index, seen, acked, first, keep, at)
  local next_before, low_before = tonumber(known[3]), tonumber(known[5])
  next_index = math.max(next_index, next_before)
  for i = at, #ARGV, 2 do
    next_index = math.max(next_index, tonumber(ARGV[i]) + 1)
  end
  -- Nobody has seen what was not cut: a client that says so must not stop later cuts.
  seen = math.min(math.max(seen, tonumber(known[4])), next_index)
  acked = math.max(acked, tonumber(known[6]))
  local low = math.max(low_before, math.min(first, next_index), next_index - keep)

  -- What is cut only now has no field yet, so a leap of the index costs no more than a step.
  session_many('HDEL', key, session_cuts(key, low_before, math.min(low, next_before)))

  for _, word in ipairs({ 'next', next_index, 'seen', seen, 'acked', acked, 'low', low }) do
    fields[#fields + 1] = word
  end
  for i = at, #ARGV, 2 do
    local index = tonumber(ARGV[i])
    -- A late repeat must not bring back what nobody needs.
    if index >= low then
      fields[#fields + 1] = 'cut:' .. index
      fields[#fields + 1] = ARGV[i + 1]
    end
  end
  session_many('HSET', key, fields)
end
