-- The record of a session, from which any gateway can resume it.
--
-- P:session:<id>, hash, with a lifetime that the session's gateway renews:
--   epoch          1, and one more after each take-over; calls with an older epoch are refused
--   gateway        the instance that has the session; '' if none has it
--   tries          how often the client had tried to resume at its last resume; 0: unknown
--   token          SHA-256 of the resume token, in hex; absent: the session has ended
--   opened         NewSession of the contract
--   tenant         tenant of the NewSession; the session is in the set of this tenant (quota.lua)
--   opened_ms, last_chunk_ms (0: none yet)
--   next           index of the next utterance
--   seen           how many results the client has seen
--   acked          all chunks below this seq are safe; the client may have dropped them
--   results, missing    how many utterances were delivered with a result, and as missing
--   low            no cut below this index is kept; it only rises
--   cut:<index>    a Cut (session_record.proto) whose result the client has not seen, or whose chunks
--                  the client may send again
--   room           of a session that speaks to a room: the id of the room
--   said:<index>   of such a session: what record_spoken answered for a cut, '<room index> <languages>';
--                  deleted together with the cut
--
-- P:sessions, sorted set: session id -> when its record expires. The index for listing all sessions; it
--   has no lifetime, because every call removes some expired entries and an empty set is no key.
--
-- Includes the clock although few scripts need it, because tests replace it together with lifetimes.
-- @include lib/now
-- @include lib/quota
-- @include lib/many

-- Fewer than the fields of any record.
local FEW_CUTS = 10

local function session_key(P, session)
  return P .. ':session:' .. session
end

-- The fields that every change of the record needs: epoch, tenant, next, seen, low, acked, room.
local function session_read(key)
  return redis.call('HMGET', key, 'epoch', 'tenant', 'next', 'seen', 'low', 'acked', 'room')
end

-- Why a gateway with this epoch must not change the record, or nil if it may. After a failover the
-- record may be older than the gateway's epoch; the gateway then has to write it again. A record
-- without a tenant is what end_session leaves. known: from session_read.
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

local function sessions_key(P)
  return P .. ':sessions'
end

-- Renews the entries of at most 500 sessions in the set of their tenant.
local function session_index(P, tenant, sessions, ttl_ms, now)
  hold_drop_ended(quota_key(P, tenant, 'sessions'), now)
  quota_hold(P, tenant, 'sessions', sessions, tonumber(ttl_ms), now)
end

-- Renews the entries of at most 500 sessions, of any tenants, in the set of all sessions.
local function session_list(P, sessions, ttl_ms, now)
  hold_drop_ended(sessions_key(P), now)
  hold_until(sessions_key(P), sessions, now + tonumber(ttl_ms))
end

-- Renews the lifetime of a record and its entries in the sets of its tenant and of all sessions.
local function session_renew(P, session, tenant, ttl_ms)
  local now = now_ms()
  redis.call('PEXPIRE', session_key(P, session), ttl_ms)
  session_index(P, tenant, { session }, ttl_ms, now)
  session_list(P, { session }, ttl_ms, now)
end

-- Removes a session from the sets of its tenant and of all sessions.
local function session_unlist(P, session, tenant)
  quota_let_go(P, tenant, 'sessions', session)
  redis.call('ZREM', sessions_key(P), session)
end

-- The names of the fields that cuts with first <= index < stop may have. known: from session_read.
local function session_cuts(key, known, first, stop)
  local names, has_room = {}, known[7]
  if stop - first > FEW_CUTS and stop - first > redis.call('HLEN', key) then
    -- A record that was written again may skip any number of indexes, so they are not listed.
    for _, name in ipairs(redis.call('HKEYS', key)) do
      local index = tonumber(string.match(name, '^%a+:(%d+)$'))
      if index and first <= index and index < stop then
        names[#names + 1] = name
      end
    end
  else
    for index = first, stop - 1 do
      names[#names + 1] = 'cut:' .. index
      if has_room then
        names[#names + 1] = 'said:' .. index
      end
    end
  end
  return names
end

-- What record_spoken answered for the cuts with these indexes: a table by index.
local function session_said(key, known, indexes)
  local said = {}
  for from = 1, known[7] and #indexes or 0, WORDS_AT_ONCE do
    local names = {}
    for i = from, math.min(from + WORDS_AT_ONCE - 1, #indexes) do
      names[#names + 1] = 'said:' .. indexes[i]
    end
    for i, value in ipairs(redis.call('HMGET', key, unpack(names))) do
      said[indexes[from + i - 1]] = value or nil
    end
  end
  return said
end

-- Updates a record, and deletes the cuts that are not needed and the lowest ones beyond `keep`. The
-- cost depends on the cuts that are added and deleted, not on the age of the session.
--
-- known: from session_read
-- fields: names and values to write unchanged
-- next_index, seen, acked: ignored if the record, or a cut, has a higher value
-- first: the first cut that is needed
-- cuts: lists index and cut
-- said: table by index of what record_spoken answers, or nil
local function session_update(key, known, fields, next_index, seen, acked, first, keep, cuts, said)
  local next_before, low_before = tonumber(known[3]), tonumber(known[5])
  next_index = math.max(next_index, next_before)
  for _, index in ipairs(cuts.index) do
    next_index = math.max(next_index, index + 1)
  end
  -- A client cannot have seen what was not cut. Without this check it could prevent later cuts.
  seen = math.min(math.max(seen, tonumber(known[4])), next_index)
  acked = math.max(acked, tonumber(known[6]))
  local low = math.max(low_before, math.min(first, next_index), next_index - keep)

  -- New cuts have no field yet, so the cost does not depend on how far the index moves.
  call_many('HDEL', key, session_cuts(key, known, low_before, math.min(low, next_before)))

  for _, word in ipairs({ 'next', next_index, 'seen', seen, 'acked', acked, 'low', low }) do
    fields[#fields + 1] = word
  end
  for i, index in ipairs(cuts.index) do
    -- A late repeat must not restore a cut that is not needed.
    if index >= low then
      fields[#fields + 1] = 'cut:' .. index
      fields[#fields + 1] = cuts.cut[i]
      if said and said[index] then
        fields[#fields + 1] = 'said:' .. index
        fields[#fields + 1] = said[index]
      end
    end
  end
  call_many('HSET', key, fields)
end
