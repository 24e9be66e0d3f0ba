"""Random walks through the scripts, each step checked against the model and against Redis itself.

A step is data: a name and its arguments. What is known only when it runs (an epoch, the node of an
attempt) is named, not copied, so a walk can be printed, repeated, and cut down to what it needs.
"""

import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import redis

from . import scripts as lua
from .model import Broken, Model, Node, TurnKey, Want
from .moves import LEAD, Ledgers
from .scripts import Limits, Registered, Scripts, able, steps

# Small numbers, so that everything collides: two nodes a shard, at most four a pool, few slots.
# All times are multiples of 500 ms, and so is every step of the clock: limits are hit exactly.
LIMITS = Limits(
    pool_size=2,
    max_pools=2,
    reservation_ttl_ms=5_000,
    running_lease_ms=20_000,
    binding_ttl_ms=30_000,
    held_in_row_max=1,
    record_ttl_ms=30_000,
    unplaced_ttl_ms=10_000,
    eject_failures=2,
    eject_ms=10_000,
    eject_max_ms=25_000,
    eject_max_share=0.5,
    forget_ms=40_000,
    owner_nodes=3,
    owner_slots=6,
)
POOLS_A_STEP = 2

NODES = ("n1", "n2", "n3", "n4", "n5")
OWNERS = ("x", "y")
JOBS = ("j1", "j2", "j3", "j4", "j5", "j6", "j7", "j8")
TENANTS = ("t1", "t2")
SESSIONS = ("a", "b")
PAIRS = (*[("zh", "en")] * 6, ("en", "zh"), ("zh", "fr"))
CAPABILITIES = {
    "all": able(),
    "all+tone": able(stages=0b11111),
    "zh>en": able(asr=["zh"], tts=["en"], nmt=["zh:en"]),
    "zh>any": able(asr=["zh"], tts=["en"]),
    "zh>en text": able(asr=["zh"], tts=[], nmt=["zh:en", "zh:fr"], stages=0b00111),
}
POOLS = sorted({pool for declared in CAPABILITIES.values() for pool in declared.pools()})
# Also those of each owner in each pool.
GROUPS = [*POOLS, *(f"{pool}@{owner}" for pool in POOLS for owner in OWNERS)]
# By the direction of a job: the first of the pools that it may be drawn from. No walk takes a day.
DIRECTIONS = [f"{text}{src}:{tgt}" for text in ("", "text:") for src, tgt in sorted(set(PAIRS))]
LEDGERS = {name: f"pool:{name}:moved:{lua.START_MS // 86_400_000}" for name in DIRECTIONS}
TURNS = [
    (tenant, session, *pair)
    for tenant in TENANTS
    for session in SESSIONS
    for pair in sorted(set(PAIRS))
]

# Reads all there is, in one round trip.
DUMP = """
local P, at, found = KEYS[1], 1, {}
local function read(command, key, ...)
  found[#found + 1] = redis.call(command, P .. ':' .. key, ...)
end
read('HGETALL', 'nodes:live')
read('SMEMBERS', 'nodes:all')
read('HGETALL', 'pools')
read('HGETALL', 'pools:owned')
read('HGETALL', 'owners:slots')
local function each(f)
  local count = tonumber(ARGV[at])
  for i = at + 1, at + count do f(ARGV[i]) end
  at = at + count + 1
end
each(function(id)
  read('ZRANGE', 'node:' .. id .. ':reserved', 0, -1, 'WITHSCORES')
  read('ZRANGE', 'node:' .. id .. ':running', 0, -1, 'WITHSCORES')
  read('HGETALL', 'node:' .. id .. ':pools')
  read('HGETALL', 'node:' .. id)
end)
each(function(pool)
  for shard = 0, 2 do read('SMEMBERS', 'pool:' .. pool .. ':' .. shard .. ':nodes') end
end)
each(function(owner)
  read('HGETALL', 'owner:' .. owner .. ':pools')
  read('HGETALL', 'owner:' .. owner .. ':nodes')
end)
each(function(moved) read('HGETALL', moved) end)
each(function(job) read('HGETALL', 'job:' .. job) end)
each(function(turn) read('HGETALL', 'turn:' .. turn) end)
read('XRANGE', 'jobs:log', '(' .. ARGV[at], '+')
return found
"""


class Step(NamedTuple):
    """One call, with arguments that can be printed and repeated."""

    name: str
    args: Mapping[str, Any]

    def __str__(self) -> str:
        shown = ", ".join(f"{key}={value!r}" for key, value in self.args.items())
        return f'Step("{self.name}", dict({shown}))'


@dataclass
class Dump:
    """What Redis holds."""

    live: dict[str, tuple[Any, ...]]
    known: set[str]
    counts: dict[str, int]
    owned: dict[str, int]
    owner_slots: dict[str, int]
    reserved: dict[str, dict[str, int]] = field(default_factory=dict)
    running: dict[str, dict[str, int]] = field(default_factory=dict)
    pools: dict[str, dict[str, str]] = field(default_factory=dict)
    owner_pools: dict[str, dict[str, str]] = field(default_factory=dict)
    owner_nodes: dict[str, dict[str, str]] = field(default_factory=dict)
    nodes: dict[str, dict[str, str]] = field(default_factory=dict)
    shards: dict[str, list[set[str]]] = field(default_factory=dict)
    ledgers: Ledgers = field(default_factory=dict)
    jobs: dict[str, dict[str, str]] = field(default_factory=dict)
    turns: dict[tuple[str, ...], dict[str, str]] = field(default_factory=dict)
    # New entries of the log of changes.
    changes: list[list[str]] = field(default_factory=list)


class Way(NamedTuple):
    """A registration's way to its pools that somebody has begun."""

    node: str
    epoch: int
    parts: list[tuple[list[str], list[str], str]]


class Walk:
    """One walk on a prefix of its own."""

    def __init__(
        self,
        client: redis.Redis,
        prefix: str,
        *,
        sources: Mapping[str, str],
        limits: Limits = LIMITS,
    ) -> None:
        few = {name: _with_lead(source) for name, source in sources.items()}
        self.scripts = Scripts(client, prefix, limits=limits, sources=few)
        self.model = Model(limits)
        self.taken: list[Step] = []
        self._dump_script = client.register_script(DUMP)
        turns = [":".join(key) for key in TURNS]
        self._universe = [
            argument
            for names in (NODES, GROUPS, OWNERS, LEDGERS.values(), JOBS, turns)
            for argument in (len(names), *names)
        ]
        self._epochs: dict[str, int] = {}
        self._forgotten: dict[str, int] = {}
        self.ways: list[Way] = []
        self._logged = "0-0"

    def take(self, step: Step) -> None:
        """Runs a step, and checks what it answered and what it left behind."""
        self.taken.append(step)
        check = getattr(self, f"_{step.name}")(**step.args)
        dump = self._read()
        if check:
            check(dump)
        self._compare(dump)
        self.model.shards = {pool: [s for s in shards if s] for pool, shards in dump.shards.items()}

    def end(self) -> None:
        """Nothing but what the model knows of may be left, and nothing of the walk stays."""
        client, prefix = self.scripts.client, self.scripts.prefix
        keys = [key.decode() for key in client.scan_iter(f"{prefix}:*", count=10_000)]
        names = ("nodes:live", "nodes:all", "pools", "pools:owned", "owners:slots", "jobs:log")
        known = {f"{prefix}:{name}" for name in names}
        known |= {f"{prefix}:hearing:{name}" for name in ("since", "last")}
        known |= {f"{prefix}:test:{name}" for name in ("now_ms", "expires")}
        for node in self.model.nodes:
            known |= {f"{prefix}:node:{node}{part}" for part in ("", ":reserved", ":running")}
            known.add(f"{prefix}:node:{node}:pools")
        known |= {f"{prefix}:job:{job}" for job in self.model.jobs}
        known |= {f"{prefix}:turn:{':'.join(key)}" for key in self.model.turns}
        known |= {f"{prefix}:session:{name}" for name in self.model.session_epochs}
        known |= {f"{prefix}:{moved}" for moved in LEDGERS.values()}
        known |= {f"{prefix}:pool:{pool}:{n}:nodes" for pool in GROUPS for n in range(3)}
        known |= {
            f"{prefix}:owner:{owner}:{what}" for owner in OWNERS for what in ("pools", "nodes")
        }
        client.delete(*keys)
        if left := set(keys) - known:
            raise Broken(f"keys were left behind: {sorted(left)}")

    # Steps. Each calls the script and tells the model; where the model must see what Redis holds
    # after the call, it is told by the function that is returned.

    def _advance(self, ms: int) -> None:
        self.scripts.advance(ms)
        self.model.advance(ms)

    def _register(
        self,
        node: str,
        can: str,
        stream: str,
        incarnation: str,
        most: int,
        owner: str,
        load: float,
        node_owner: str,
        running: list[str],
        finished: list[str],
    ) -> None:
        if self._forgotten.get(node) == self.model.now:
            # Epochs come from the clock: between two lives of a node a moment passes.
            self._advance(500)
        declared = CAPABILITIES[can]
        options: dict[str, Any] = {"incarnation": incarnation, "stream": stream, "most": most}
        options |= {"owner": owner, "load": load, "node_owner": node_owner}
        options |= {"running": running, "finished": finished}
        reply = self.scripts.register(node, declared, address=f"{owner}:1", **options)
        self.model.register(node, declared, **options, reply=reply)
        if isinstance(reply, Registered):
            self._epochs[stream] = reply.epoch
            if not reply.in_place:
                has = self.scripts.places_of(node)
                self.ways.append(
                    Way(node, reply.epoch, steps(has, declared, POOLS_A_STEP, node_owner))
                )

    def _move(self, way: int) -> None:
        """The next part of one of the ways that were begun."""
        if way >= len(self.ways):
            return
        node, epoch, parts = self.ways[way]
        join, leave, digest = parts.pop(0)
        reply = self.scripts.move(node, epoch, join=join, leave=leave, digest=digest)
        if not parts or reply != "ok":
            del self.ways[way]
        self.model.move(node, epoch, join, leave, digest, reply=reply)

    def _die(self, way: int) -> None:
        """Whoever took a node along a way is no more."""
        if way < len(self.ways):
            del self.ways[way]

    def _beat(self, beats: list[tuple[str, str, int, float, list[str]]]) -> None:
        resolved = [(node, self._epoch(stream), *rest) for node, stream, *rest in beats]
        self.model.heartbeat(resolved, reply=self.scripts.beats(resolved))

    def _health(self, node: str, health: int, stream: str, by_operator: bool) -> None:
        epoch = self._epoch(stream)
        reply = self.scripts.set_health(node, health, epoch=epoch, by_operator=by_operator)
        self.model.set_health(node, health, epoch, by_operator, reply=reply)

    def _remove(
        self, node: str, stream: str, forget: bool, silent_ms: int
    ) -> Callable[[Dump], None]:
        epoch = self._epoch(stream)
        options = {"forget": forget, "step": POOLS_A_STEP, "silent_ms": silent_ms}
        reply = self.scripts.remove_step(node, epoch=epoch, **options)

        def check(dump: Dump) -> None:
            pools = set(dump.pools[node])
            self.model.remove(node, epoch, **options, reply=reply, pools=pools)
            if node not in self.model.nodes:
                self._forgotten[node] = self.model.now

        return check

    def _sweep(self) -> None:
        self.model.sweep(reply=self.scripts.sweep())

    def _select(self, seed: int, want: dict[str, Any]) -> None:
        reply = self.scripts.select(seed=seed, **want)
        self.model.select(Want(**want), reply=reply)

    def _allocate(
        self, job: str, attempt: int, seed: int, want: dict[str, Any], **rest: Any
    ) -> None:
        reply = self.scripts.allocate(job, attempt, seed=seed, **rest, **want)
        self.model.allocate(job, attempt, Want(**want), **rest, reply=reply)

    def _reserve(self, node: str, job: str, attempt: int) -> None:
        self.model.reserve(node, job, attempt, reply=self.scripts.reserve(node, job, attempt))

    def _commit(self, node: str, job: str, attempt: int) -> None:
        node = self._node_of(node, job, attempt)
        self.model.commit(node, job, attempt, reply=self.scripts.commit(node, job, attempt))

    def _release(
        self, node: str, job: str, attempt: int, fault: bool, final: str, may_run: bool
    ) -> None:
        node = self._node_of(node, job, attempt)
        reply = self.scripts.release(node, job, attempt, fault=fault, final=final, may_run=may_run)
        self.model.release(node, job, attempt, fault, final, may_run, reply=reply)

    def _complete(
        self, node: str, job: str, attempt: int, outcome: str, final: str, bad_job: bool, kind: int
    ) -> None:
        node = self._node_of(node, job, attempt)
        how: dict[str, Any] = {"final": final, "bad_job": bad_job, "kind": kind}
        reply = self.scripts.complete(node, job, attempt, outcome, **how)
        self.model.complete(node, job, attempt, outcome, **how, reply=reply)

    def _end_job(self, job: str, state: str, home: str, error: str, reason: int) -> None:
        reply = self.scripts.end_job(job, state, home=home, error=error, reason=reason)
        self.model.end_job(job, state, home, error, reason, reply=reply)

    def _bind(self, turn: TurnKey, node: str, kind: str, utterance: int) -> None:
        tenant, session, src, tgt = turn
        options: dict[str, Any] = {"kind": kind, "utterance": utterance, "tenant": tenant}
        reply = self.scripts.bind(session, node, src=src, tgt=tgt, **options)
        self.model.bind(turn, kind, node, utterance, reply=reply)

    def _clear(self, tenant: str, session: str, pairs: list[tuple[str, str]]) -> None:
        reply = self.scripts.clear(session, *pairs, tenant=tenant)
        self.model.clear([(tenant, session, *pair) for pair in pairs], reply=reply)

    def _take_over(self, session: str) -> None:
        """Another gateway has the session now."""
        epoch = self.model.session_epochs.get(session, 1) + 1
        self.model.session_epochs[session] = epoch
        self.scripts.client.hset(self.scripts.key("session", session), "epoch", epoch)

    def _lose(self, node: str, job: str, attempt: int, record: bool) -> None:
        """A failover: Redis has lost a running lease, and perhaps the job's record."""
        node = self._node_of(node, job, attempt)
        known, lease = self.model.nodes.get(node), f"{job}:{attempt}"
        client, key = self.scripts.client, self.scripts.key
        if known and known.running.pop(lease, None):
            client.zrem(key("node", node, "running"), lease)
            packed = client.hget(key("nodes", "live"), node)
            assert packed is not None
            fields = list(_LIVE.unpack_from(packed))
            fields[6] -= 1
            packed = _LIVE.pack(*fields) + packed[_LIVE.size :]
            client.hset(key("nodes", "live"), node, packed)
        if record and self.model.jobs.pop(job, None):
            client.delete(key("job", job))
            client.zrem(key("test", "expires"), key("job", job))

    def _epoch(self, stream: str) -> int:
        return self._epochs.get(stream, 1) if stream else 0

    def _node_of(self, node: str, job: str, attempt: int) -> str:
        """The node that is named, or the one that the attempt is on."""
        if node:
            return node
        known = self.model.jobs.get(job)
        return known.attempts[attempt].node if known and attempt in known.attempts else NODES[0]

    # What Redis holds, against the model and on its own.

    def _read(self) -> Dump:
        args = [*self._universe, self._logged]
        found = iter(self._dump_script(keys=[self.scripts.prefix], args=args))
        live = {name: _unpacked(packed) for name, packed in _raw_pairs(next(found))}
        known = set(map(bytes.decode, next(found)))
        counts, owned, slots = (
            {name: int(count) for name, count in _pairs(next(found))} for _ in range(3)
        )
        dump = Dump(live, known, counts, owned, slots)
        for node in NODES:
            dump.reserved[node] = {lease: int(ends) for lease, ends in _pairs(next(found))}
            dump.running[node] = {lease: int(ends) for lease, ends in _pairs(next(found))}
            dump.pools[node] = dict(_pairs(next(found)))
            dump.nodes[node] = dict(_pairs(next(found)))
        for pool in GROUPS:
            dump.shards[pool] = [set(map(bytes.decode, next(found))) for _ in range(3)]
        for owner in OWNERS:
            dump.owner_pools[owner] = dict(_pairs(next(found)))
            dump.owner_nodes[owner] = dict(_pairs(next(found)))
        for direction in LEDGERS:
            if ledger := {account: int(jobs) for account, jobs in _pairs(next(found))}:
                dump.ledgers[direction] = ledger
        for job in JOBS:
            dump.jobs[job] = dict(_pairs(next(found)))
        for turn in TURNS:
            dump.turns[turn] = dict(_pairs(next(found)))
        for entry_id, fields in next(found):
            self._logged = entry_id.decode()
            dump.changes.append(dict(_pairs(fields))["c"].split("|"))
        return dump

    def _compare(self, dump: Dump) -> None:
        _same("nodes", dump.known, set(self.model.nodes))
        _same("live nodes", set(dump.live), set(self.model.nodes))
        for name in NODES:
            if node := self.model.nodes.get(name):
                self._compare_node(dump, name, node)
            elif dump.reserved[name] or dump.running[name] or dump.pools[name] or dump.nodes[name]:
                raise Broken(f"{name} was forgotten, but something of it stayed")
        self._compare_pools(dump)
        may_be = self.model.next_ledgers or [self.model.ledgers]
        if dump.ledgers not in may_be:
            raise Broken(f"the accounts of moves are {dump.ledgers}, not one of {may_be}")
        self.model.ledgers, self.model.next_ledgers = dump.ledgers, []
        for name in JOBS:
            _same(f"record of {name}", _shown(dump.jobs[name]), self._record(name))
        for key in TURNS:
            _same(f"turn of {key}", dump.turns[key], self._turn(key))
        _same("changes in the log", dump.changes, self.model.next_changes)
        self.model.next_changes = []

    def _compare_node(self, dump: Dump, name: str, node: Node) -> None:
        now = self.model.now
        beat, epoch, next_end, load, ejected, kept, used, most, *rest = dump.live[name]
        got = (beat, epoch, load, ejected, kept, most, *rest)
        says = (node.beat, node.epoch, node.load, node.ejected, node.kept, node.most, node.health)
        says += (node.drained, node.declared.stages, node.failures, node.ejections)
        says += (node.blamed, node.owner)
        _same(f"{name}'s live record", got, says)
        drain = tuple(
            int(dump.nodes[name].get(fact, -1)) for fact in ("drained_ms", "drained_used")
        )
        _same(f"{name}'s drain", drain, node.drain or (-1, -1))
        for kind, held, wanted in (
            ("reserved", dump.reserved[name], node.reserved),
            ("running", dump.running[name], node.running),
        ):
            living = {lease: ends for lease, ends in held.items() if ends > now}
            _same(f"{name}'s {kind} leases", living, wanted)
        ends = [*dump.reserved[name].values(), *dump.running[name].values()]
        if next_end > min(ends, default=next_end):
            raise Broken(f"{name}: a lease ends at {min(ends)}, before {next_end}")
        if next_end > now and used != len(ends):
            raise Broken(f"{name}: the cache says {used} leases, there are {len(ends)}")

    def _compare_pools(self, dump: Dump) -> None:
        size = self.model.limits.pool_size
        counts = {}
        for pool, shards in dump.shards.items():
            sizes = [len(shard) for shard in shards]
            if total := sum(sizes):
                counts[pool] = total
            if sizes != [min(size, max(0, total - at * size)) for at in range(len(sizes))]:
                raise Broken(f"pool {pool} has shards of {sizes}: a gap before the last")
        _same("counts of pools", dump.counts | dump.owned, counts)
        for name in NODES:
            held = _places(dump, name)
            _same(f"shards of {name} and its own list of them", held, dump.pools[name])
            if node := self.model.nodes.get(name):
                owners = {pool: place.partition("@")[2] for pool, place in held.items()}
                _same(f"pools of {name}", owners, node.places)
                if node.in_place_for and not node.is_out:
                    _same(f"pools of {name} and its abilities", set(held), node.declared.pools())
                    _same(f"owners of {name}", set(owners.values()), {node.node_owner})
                if node.health == lua.OUT and held:
                    raise Broken(f"{name} is out, but in {held}")
        for owner in OWNERS:
            placed = _places(dump, f"@{owner}")
            for name in NODES:
                only = _places(dump, f"+{name}")
                placed |= {
                    pool: only[pool] for pool in only if _owner_in(dump, name, pool) == owner
                }
            _same(f"entries of {owner}", placed, dump.owner_pools[owner])
            has = {name: str(slots) for name, slots in self.model.slots_of(owner).items()}
            _same(f"nodes of {owner}", dump.owner_nodes[owner], has)
            slots = sum(self.model.slots_of(owner).values())
            _same(f"slots of {owner}", dump.owner_slots.get(owner, 0), slots)
        for pool in POOLS:
            entries = set().union(*dump.shards[pool])
            _same(f"entries of {pool}", entries, self.model.entries(pool))

    def _record(self, name: str) -> dict[str, str]:
        job = self.model.jobs.get(name)
        if job is None:
            return {}
        record = {"state": job.state}
        if job.latest:
            record["attempt"] = str(job.latest)
        if job.error is not None:
            record["error"] = job.error
        if job.winner:
            record["winner"] = str(job.winner)
        if job.home:
            record["home"] = job.home
        for number, attempt in job.attempts.items():
            record |= {f"{number}:node": attempt.node, f"{number}:state": attempt.state}
            if attempt.path:
                record[f"{number}:path"] = str(attempt.path)
            if attempt.turn:
                record[f"{number}:turn"] = attempt.turn
        return record

    def _turn(self, key: TurnKey) -> dict[str, str]:
        turn = self.model.turns.get(key)
        if turn is None:
            return {}
        wanted = {"turn": str(turn.utterance)}
        if turn.holds:
            wanted["holds"] = str(turn.holds)
        if turn.kind:
            wanted |= {f"{turn.kind}_node_id": turn.node, f"{turn.kind}_until_ms": str(turn.until)}
            wanted |= {"id": turn.name} if turn.name else {}
        return wanted


def _places(dump: Dump, entry: str) -> dict[str, str]:
    """Where an entry is, by pool: "<shard>", or "<shard>@<owner>" in the group of an owner."""
    found = {}
    for name, shards in dump.shards.items():
        pool, at_owner, owner = name.partition("@")
        for number, shard in enumerate(shards):
            if entry in shard:
                found[pool] = f"{number}{at_owner}{owner}"
    return found


def _owner_in(dump: Dump, name: str, pool: str) -> str:
    return dump.pools[name].get(pool, "").partition("@")[2]


_LIVE = struct.Struct("<ddddddHHBBBBBIB")


def _unpacked(packed: bytes) -> tuple[Any, ...]:
    *fields, length = _LIVE.unpack_from(packed)
    return (*fields, packed[_LIVE.size : _LIVE.size + length].decode())


def _raw_pairs(flat: Sequence[bytes]) -> list[tuple[str, bytes]]:
    return [(flat[at].decode(), flat[at + 1]) for at in range(0, len(flat), 2)]


def _pairs(flat: Sequence[bytes]) -> list[tuple[str, str]]:
    return [(flat[at].decode(), flat[at + 1].decode()) for at in range(0, len(flat), 2)]


def _with_lead(source: str) -> str:
    """The script with a limit of moves that a walk reaches."""
    return re.sub(r"local LEAD = \d+", f"local LEAD = {LEAD}", source)


def _shown(record: dict[str, str]) -> dict[str, str]:
    """The fields of a job's record that the model has."""
    kept = ("state", "attempt", "winner", "home", "error")
    ends = (":node", ":state", ":path", ":turn")
    return {name: value for name, value in record.items() if name in kept or name.endswith(ends)}


def _same(what: str, got: object, wanted: object) -> None:
    if got != wanted:
        raise Broken(f"{what}: Redis has\n    {got}\n  the model\n    {wanted}")
