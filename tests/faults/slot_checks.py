"""Checks of slots that run in the same atomic step as the scripts that give and take them.

After each call, what Redis holds (the sets of leases) is compared with what callers were told (a
ledger that is written from the replies of the scripts alone). A slot that is given twice shows in
the first; one that is taken from under its holder shows in the second.
"""

from lingua_scheduler.services.runtime.redis.script_header import prelude
from lingua_scheduler.services.runtime.redis.scripts import load_scripts, script_headers

# Runs after a script, in the same atomic step, with the script's arguments. `told` reads its reply:
# the node, the lease, and when it ends (nil: it has ended).
CHECKED = """
{arguments}
local function under_test()
{source}
end
local reply = under_test()
local P = KEYS[1]
redis.call('HINCRBY', P .. ':test:calls', '{name}', 1)
if reply[1] == 'ALL_CANDIDATES_FULL_OR_FAILED' then
  redis.call('HINCRBY', P .. ':test:refusals', '{name}', 1)
end

local function told()
{told}
end
local id, lease, ends = told()
if not id then
  return reply
end
redis.call('HINCRBY', P .. ':test:changes', '{name}', 1)
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local ledger = P .. ':test:told:' .. id
if ends then
  redis.call('ZADD', ledger, ends, lease)
else
  redis.call('ZREM', ledger, lease)
end
redis.call('ZREMRANGEBYSCORE', ledger, '-inf', now)
local promised = redis.call('ZCARD', ledger)
local held = redis.call('ZCOUNT', P .. ':node:' .. id .. ':reserved', '(' .. now, '+inf')
  + redis.call('ZCOUNT', P .. ':node:' .. id .. ':running', '(' .. now, '+inf')
local max = tonumber(redis.call('HGET', P .. ':test:max', id))
if promised > max or held ~= promised then
  redis.call('RPUSH', P .. ':test:violations', string.format(
    '%s after {name} of %s: %d slots, %d leases, %d promised', id, lease, max, held, promised))
end
return reply
"""
TOLD = {
    "allocate": """
  if reply[1] == 'ok' and reply[2] == 0 then
    return reply[6], job .. ':' .. reply[3], reply[5]
  end""",
    "reserve": """
  if reply[1] == 'ok' and reply[2] == 0 then
    return node_id, job .. ':' .. attempt, reply[3]
  end""",
    "commit": """
  if reply[1] == 'committed' or reply[1] == 'committed_late' then
    return node_id, job .. ':' .. attempt, reply[2]
  end""",
    "release": """
  if reply[1] == 'released' then
    return node_id, job .. ':' .. attempt, nil
  end""",
    "complete": "  return node_id, job .. ':' .. attempt, nil",
}
# All nodes at one moment. Returns the first node with more leases than slots or '', how many
# leases there are, and when the last one ends.
SAMPLE = """
local P = KEYS[1]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local over, total, last = '', 0, 0
local slots = redis.call('HGETALL', P .. ':test:max')
for i = 1, #slots, 2 do
  local held = 0
  for _, kind in ipairs({ ':reserved', ':running' }) do
    local key = P .. ':node:' .. slots[i] .. kind
    held = held + redis.call('ZCOUNT', key, '(' .. now, '+inf')
    local latest = redis.call('ZREVRANGE', key, 0, 0, 'WITHSCORES')
    last = math.max(last, tonumber(latest[2]) or 0)
  end
  if held > tonumber(slots[i + 1]) then
    over = slots[i] .. ' holds ' .. held .. ' of ' .. slots[i + 1]
  end
  total = total + held
end
return { over, total, last, now }
"""

# Faults that the checks must see: script, what is replaced in it, and by what.
MUTATIONS: dict[str, list[tuple[str, str, str]]] = {
    "": [],
    "the draw does not look for room": [
        ("allocate", "if not why and is_full(used, max, kept, now) then why = 'full' end", ""),
        (
            "allocate",
            "if not is_full(node.used, node.max, node.kept, now) then return id, node end",
            "do return id, node end",
        ),
    ],
    "reservations are dropped before they end": [
        (
            "allocate",
            "redis.call('ZREMRANGEBYSCORE', reserved, '-inf', now)",
            "redis.call('ZREMRANGEBYSCORE', reserved, '-inf', now + 250)",
        ),
        ("allocate", "if node.next_end <= now then", "if true then"),
    ],
    "a late commit takes a slot that is not there": [
        ("commit", "elseif node.used < node.max then", "elseif true then"),
    ],
    "leases are not counted when a node is settled": [
        ("allocate", "node.used = redis.call('ZCARD', reserved) + ", "node.used = 0 * "),
    ],
}


def checked_scripts(mutation: str) -> dict[str, str]:
    """The real scripts, those that give and take slots with the check behind them."""
    scripts = load_scripts()
    for name, old, new in MUTATIONS[mutation]:
        assert old in scripts[name], f"{name} no longer has: {old}"
        scripts[name] = scripts[name].replace(old, new)
    for name, told in TOLD.items():
        scripts[name] = CHECKED.format(
            arguments=prelude(script_headers(name)), source=scripts[name], name=name, told=told
        )
    return scripts
