-- Members of a room, and what they want.
--
-- P:room:<id>:members, hash: member id -> these, with a line feed between:
--   gateway, role ('s' speaks, 'l' listens), language, flags (letters: 'c' captions, 's' speech, 'o'
--   original audio), joined_ms, change (join_room), from and open (what join_room answered), name
-- P:room:<id>:speakers, sorted set: member id of a speaker -> joined_ms
-- P:room:<id>:wants, hash of counters, in step with the members; a counter of 0 has no field:
--   <language>     listeners
--   <language>+    those of them that want speech
--   *              listeners that want the original audio
--   #speakers, #listeners
--   @<gateway>     members at this gateway
-- @include lib/room
-- @include lib/many

-- The member that a field describes; nil if there is none.
local function member_parse(packed)
  if not packed then
    return nil
  end
  local line, found = '([^\n]*)\n', {}
  found.gateway, found.role, found.language, found.flags, found.joined_ms, found.change, found.from,
    found.open, found.name = string.match(packed, '^' .. string.rep(line, 8) .. '(.*)$')
  return found
end

local function member_pack(member)
  return table.concat({ member.gateway, member.role, member.language, member.flags,
    member.joined_ms, member.change, member.from, member.open, member.name }, '\n')
end

-- The counters, by field.
local function wants_read(P, room)
  local flat, counts = redis.call('HGETALL', room_key(P, room, 'wants')), {}
  for i = 1, #flat, 2 do
    counts[flat[i]] = tonumber(flat[i + 1])
  end
  return counts
end

-- Writes counters back.
local function wants_write(P, room, counts)
  local set, gone = {}, {}
  for field, count in pairs(counts) do
    if count > 0 then
      set[#set + 1], set[#set + 2] = field, count
    else
      gone[#gone + 1] = field
    end
  end
  call_many('HSET', room_key(P, room, 'wants'), set)
  call_many('HDEL', room_key(P, room, 'wants'), gone)
end

-- The languages that somebody listens to.
local function wants_languages(counts)
  local languages = {}
  for field, count in pairs(counts) do
    if count > 0 and string.find(field, '^%a[%w-]*$') then
      languages[#languages + 1] = field
    end
  end
  table.sort(languages)
  return languages
end

-- Counts a member: by 1, or by -1 if it is leaving.
local function wants_count(counts, member, by)
  local function count(field)
    counts[field] = (counts[field] or 0) + by
  end
  count('@' .. member.gateway)
  if member.role == 's' then
    count('#speakers')
    return
  end
  count('#listeners')
  count(member.language)
  if string.find(member.flags, 's', 1, true) then
    count(member.language .. '+')
  end
  if string.find(member.flags, 'o', 1, true) then
    count('*')
  end
end

-- The members have changed: all gateways learn of it.
local function members_changed(P, room)
  redis.call('HINCRBY', room_key(P, room), 'version', 1)
  room_news(P, room)
end

-- Removes all members of some gateways, and counts the others anew.
local function members_drop(P, room, gateways)
  local is_gone, counts = {}, wants_read(P, room)
  for _, gateway in ipairs(gateways) do
    is_gone[gateway] = true
  end
  for field in pairs(counts) do
    counts[field] = 0
  end
  local flat, dropped = redis.call('HGETALL', room_key(P, room, 'members')), {}
  for i = 1, #flat, 2 do
    local member = member_parse(flat[i + 1])
    if is_gone[member.gateway] then
      dropped[#dropped + 1] = flat[i]
    else
      wants_count(counts, member, 1)
    end
  end
  call_many('HDEL', room_key(P, room, 'members'), dropped)
  call_many('ZREM', room_key(P, room, 'speakers'), dropped)
  call_many('ZREM', room_key(P, room, 'gateways'), gateways)
  wants_write(P, room, counts)
  members_changed(P, room)
end

-- Removes gateways whose lease has ended, with their members. This costs one command unless there
-- are any.
--
-- If the leases of all gateways have ended, it was Redis that could not be reached: they get another
-- one, so that members are still translated for when Redis is back.
--
-- alive: a gateway that is known to be alive, or nil.
local function members_settle(P, room, now, lease_ms, alive)
  local gateways = room_key(P, room, 'gateways')
  local first = redis.call('ZRANGE', gateways, 0, 0, 'WITHSCORES')
  if not first[1] or tonumber(first[2]) > now then
    return
  end
  local ended = redis.call('ZRANGEBYSCORE', gateways, '-inf', now)
  if #ended == redis.call('ZCARD', gateways) then
    for _, gateway in ipairs(ended) do
      redis.call('ZADD', gateways, now + lease_ms, gateway)
    end
    return
  end
  local gone = {}
  for _, gateway in ipairs(ended) do
    if gateway ~= alive then
      gone[#gone + 1] = gateway
    end
  end
  if #gone > 0 then
    members_drop(P, room, gone)
  end
end
