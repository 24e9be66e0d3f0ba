"""What the scripts promise, in plain Python: the specification that test_model.py holds them to.

Each method stands for one script. It is told what the script was asked and what it answered,
checks that the answer is one that was allowed, and changes the model as Redis must have changed.
Where chance decides, every outcome that chance may bring is allowed and no other. It is one file,
though a long one, because a specification is read whole.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, product
from typing import Any, NamedTuple

from lingua_scheduler.services.runtime.contract.capabilities import Capabilities

from . import moves
from . import scripts as lua
from .scripts import Chosen, Held, Limits, Placed, Refused, Registered

JOB_OVER = {"done", "failed", "cancelled"}
COMPLETED = {"done", "failed", "timed_out", "cancelled"}
MAX_SHARDS = 3
KEEP_SLOT_MS = 300
LOGGED_ATTEMPTS = 8

# Tenant, session, source and target language.
TurnKey = tuple[str, str, str, str]


class Broken(AssertionError):  # noqa: N818 - a verdict, not an error of the tests
    """The scripts did what they must not."""


def expect(got: object, *allowed: object) -> None:
    """Fails unless `got` is one of the allowed values."""
    if got not in allowed:
        wanted = "\n    or ".join(map(str, allowed)) or "nothing at all"
        raise Broken(f"answered {got}\n  wanted {wanted}")


@dataclass
class Node:
    """A node that is known."""

    incarnation: str
    stream: str
    epoch: int
    declared: Capabilities
    health: int
    load: float
    most: int
    owner: str
    address: str
    beat: int
    drained: bool = False
    # When an operator drained it, and how many slots were taken then.
    drain: tuple[int, int] | None = None
    failures: int = 0
    ejections: int = 0
    ejected: int = 0
    # Names the session whose job failed last.
    blamed: int = 0
    # Until when its last free slot is kept for a turn.
    kept: int = 0
    reserved: dict[str, int] = field(default_factory=dict)
    running: dict[str, int] = field(default_factory=dict)
    node_owner: str = ""
    # The pools that it is in, each with the owner that it is there for ('': none).
    places: dict[str, str] = field(default_factory=dict)
    # The digest of the capabilities whose pools it is in; '' while it is on its way.
    in_place_for: str = ""

    @property
    def pools(self) -> set[str]:
        """The pools that it is in."""
        return set(self.places)

    @property
    def used(self) -> int:
        """Slots that are taken."""
        return len(self.reserved) + len(self.running)

    @property
    def has_room(self) -> bool:
        """Whether one more lease may be added."""
        return self.used < self.most

    def has_room_beside_turns(self, now: int) -> bool:
        """Whether a job that is not bound to it may have a slot."""
        return self.used < self.most - (self.kept > now)

    @property
    def is_out(self) -> bool:
        """Whether it must register again."""
        return self.health in (lua.LEAVING, lua.OUT)


@dataclass
class Attempt:
    """One try at a job."""

    node: str
    state: str
    path: int | None = None
    # The job that began its turn; "": its own.
    turn: str = ""


class About(NamedTuple):
    """What the record of a job says of it."""

    tenant: str
    session: str
    utterance: int
    src: str
    tgt: str
    reason: int
    created: int


@dataclass
class Job:
    """The record of a job."""

    expires: int
    state: str = ""
    latest: int = 0
    winner: int | None = None
    home: str | None = None
    turn: TurnKey | None = None
    utterance: int = 0
    # Why it ended; None: nobody has said so.
    error: str | None = None
    # As in the log; None: the record does not say.
    about: About | None = None
    attempts: dict[int, Attempt] = field(default_factory=dict)

    @property
    def over(self) -> bool:
        """Whether nothing more may happen to it."""
        return self.state in JOB_OVER


@dataclass
class Turn:
    """The binding of one direction of a session: at most one."""

    utterance: int
    expires: int
    kind: str = ""
    node: str = ""
    until: int = 0
    # Pauses in a row over which a node has kept audio.
    holds: int = 0
    # The job that began it; "": that is not known.
    name: str = ""


@dataclass(frozen=True)
class Want:
    """What a job asks of its node."""

    src: str = "zh"
    tgt: str = "en"
    text: bool = False
    stages: int = 0
    preferred: str = ""
    strict: bool = False
    instance: str = ""
    tenant: str = "t1"
    session: str = ""
    exclude: tuple[str, ...] = ()

    @property
    def turn(self) -> TurnKey | None:
        """The turn that the job belongs to, if it has a session."""
        return (self.tenant, self.session, self.src, self.tgt) if self.session else None

    @property
    def pools(self) -> list[str]:
        """The pools that are drawn from, as if they were one."""
        if self.text:
            return [f"text:{self.src}:{self.tgt}", f"text:{self.src}:*"]
        return [f"{self.src}:{self.tgt}"]


@dataclass
class Choice:
    """What a choice may come to: a node by a path, or a refusal."""

    binding: int = lua.NONE
    binding_kind: int = 0
    nodes: dict[str, int] = field(default_factory=dict)
    refusals: list[Refused] = field(default_factory=list)
    # Nodes of a pool by the accounts that a move may have taken the job from; "": it was not moved.
    moves: dict[str, set[str]] = field(default_factory=dict)

    def check(self, reply: Chosen | Placed | Refused) -> None:
        """Fails unless the reply is one of these."""
        if isinstance(reply, Refused):
            expect(reply, *self.refusals)
            return
        expect((reply.node, reply.path), *self.nodes.items())
        expect((reply.binding, reply.binding_kind), (self.binding, self.binding_kind))


class Model:
    """All that the scripts know."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.now = lua.START_MS
        # Since when heartbeats have arrived without a gap, and the last of them.
        self.hearing = (0, 0)
        self.nodes: dict[str, Node] = {}
        self.jobs: dict[str, Job] = {}
        self.turns: dict[TurnKey, Turn] = {}
        self.session_epochs: dict[str, int] = {}
        # Who shares a shard is left to chance, so it is taken from Redis after every step.
        self.shards: Mapping[str, Sequence[set[str]]] = {}
        self.ledgers: moves.Ledgers = {}
        # What they may be after this step, if it left that to chance.
        self.next_ledgers: list[moves.Ledgers] = []
        # What this step adds to the log of changes: the parts of an entry.
        self.next_changes: list[list[str]] = []

    # Time.

    def advance(self, ms: int) -> None:
        """Time passes: leases, records and turns end."""
        self.now += ms
        for node in self.nodes.values():
            node.reserved = {
                lease: ends for lease, ends in node.reserved.items() if ends > self.now
            }
            node.running = {lease: ends for lease, ends in node.running.items() if ends > self.now}
        self.jobs = {name: job for name, job in self.jobs.items() if job.expires > self.now}
        self.turns = {key: turn for key, turn in self.turns.items() if turn.expires > self.now}

    # Nodes.

    def register(
        self,
        name: str,
        declared: Capabilities,
        *,
        incarnation: str,
        stream: str,
        most: int,
        owner: str,
        load: float,
        node_owner: str,
        running: Sequence[str],
        finished: Sequence[str],
        reply: Registered | Refused,
    ) -> None:
        """A live node is replaced only by its own process; each connection has a larger epoch."""
        node = self.nodes.get(name)
        if node and node.incarnation != incarnation and self._speaks(node):
            expect(reply, Refused("NODE_ID_CONFLICT", {node.owner: 1}))
            return
        if refused := self._owner_refusal(node_owner, name, most):
            expect(reply, refused)
            return
        if node is None:
            node = Node(incarnation, "", 0, declared, lua.READY, load, most, owner, "", self.now)
            self.nodes[name] = node
        if node.stream != stream or node.is_out:
            node.epoch = max(self.now * 1000, node.epoch + 1)
        in_place = node.in_place_for == lua.digest(declared, node_owner) and not node.is_out
        expect(reply, Registered(node.epoch, in_place))
        if not in_place:
            node.in_place_for = ""
        node.incarnation, node.stream, node.declared = incarnation, stream, declared
        node.health, node.load, node.most, node.beat = lua.READY, load, most, self.now
        node.owner, node.address = owner, f"{owner}:1"
        node.node_owner = node_owner
        node.running = {
            lease: ends
            for lease, ends in node.running.items()
            if lease in running or lease in finished
        }
        node.reserved = {
            lease: ends
            for lease, ends in node.reserved.items()
            if lease in running or not self._given_up(lease)
        }
        self._renew(name, node, running)

    def slots_of(self, node_owner: str) -> dict[str, int]:
        """The nodes of an owner that are in pools or on the way there, and the slots of each."""
        return {
            name: node.most
            for name, node in self.nodes.items()
            if node_owner and node.node_owner == node_owner and node.health != lua.OUT
        }

    def _owner_refusal(self, node_owner: str, name: str, most: int) -> Refused | None:
        limits = self.limits
        others = {
            other: slots for other, slots in self.slots_of(node_owner).items() if other != name
        }
        used = sum(others.values())
        over, limit = "", 0
        if node_owner and len(others) >= limits.owner_nodes:
            over, have, limit = "owner_nodes", len(others), limits.owner_nodes
        elif node_owner and used + most > limits.owner_slots:
            over, have, limit = "owner_slots", used, limits.owner_slots
        if not over:
            return None
        return Refused("QUOTA_EXCEEDED", {over: have, "limit": limit, "retry_ms": 5000})

    def _speaks(self, node: Node) -> bool:
        return node.health < lua.OFFLINE and node.beat > self.now - self.limits.stale_ms

    def move(
        self,
        name: str,
        epoch: int,
        join: Sequence[str],
        leave: Sequence[str],
        digest: str,
        *,
        reply: str,
    ) -> None:
        """Only the current connection moves a node, and only while it is not on its way out."""
        node = self.nodes.get(name)
        if node is None or (node.epoch == epoch and node.is_out):
            expect(reply, "NODE_NOT_FOUND")
            return
        if node.epoch != epoch:
            expect(reply, "NODE_EPOCH_OLD")
            return
        for pool in join:
            if node.places.get(pool) == node.node_owner:
                continue
            node.places.pop(pool, None)
            if len(self.entries(pool)) >= self.limits.pool_size * self.limits.max_pools:
                expect(reply, "POOL_FULL")
                return
            node.places[pool] = node.node_owner
        expect(reply, "ok")
        for pool in leave:
            node.places.pop(pool, None)
        if digest:
            node.in_place_for = digest

    def entries(self, pool: str) -> set[str]:
        """Who has a place in the draw of a pool: nodes without an owner, and owners."""
        by_owner: dict[str, list[str]] = {}
        for name, node in self.nodes.items():
            if pool in node.places:
                by_owner.setdefault(node.places[pool], []).append(name)
        nodes = set(by_owner.pop("", ()))
        for owner, owned in by_owner.items():
            nodes.add(f"@{owner}" if len(owned) > 1 else f"+{owned[0]}")
        return nodes

    def heartbeat(self, beats: Iterable[tuple[Any, ...]], *, reply: list[tuple[str, ...]]) -> None:
        """Renews nodes and what they run; touches no pool."""
        problems: list[tuple[str, ...]] = []
        self.hearing = (self._hearing_since(), self.now)
        for name, epoch, health, load, running in beats:
            node = self.nodes.get(name)
            if node is None:
                problems.append((name, "register_again"))
            elif node.epoch != epoch:
                problems.append((name, "epoch_old"))
            elif node.is_out:
                problems.append((name, "register_again"))
            else:
                node.beat, node.load, node.health = self.now, load, health or node.health
                if refused := self._renew(name, node, running):
                    problems.append((name, "not_renewed", *refused))
        expect(reply, problems)

    def _renew(self, name: str, node: Node, running: Sequence[str]) -> list[str]:
        refused = []
        ends = self.now + self.limits.running_lease_ms
        for lease in running:
            if lease in node.running:
                if node.running[lease] < self.now + self.limits.running_lease_ms / 2:
                    node.running[lease] = ends
            elif lease in node.reserved:
                if self._given_up(lease):
                    del node.reserved[lease]
                    refused.append(lease)
            else:
                job, attempt = self._lease_of(lease)
                known = job and job.attempts.get(attempt)
                if self._lost(name, job, attempt) and node.has_room:
                    node.running[lease] = ends
                elif not known or known.state != "reserved" or known.node != name:
                    refused.append(lease)
        return refused

    def _lost(self, name: str, job: Job | None, attempt: int) -> bool:
        """Whether the lease should be there: nothing says that the attempt is no longer wanted."""
        if job is None:
            return True
        known = job.attempts.get(attempt)
        if job.over or known is None or known.state != "running" or known.node != name:
            return False
        return not (job.winner and job.winner != attempt and self._alive(job, job.winner))

    def _given_up(self, lease: str) -> bool:
        """Whether the attempt was released while its node may have had it."""
        job, number = self._lease_of(lease)
        attempt = job.attempts.get(number) if job else None
        return attempt is not None and attempt.state == "released"

    def _lease_of(self, lease: str) -> tuple[Job | None, int]:
        job, _, attempt = lease.rpartition(":")
        return self.jobs.get(job), int(attempt)

    def set_health(
        self, name: str, health: int, epoch: int, by_operator: bool, *, reply: str
    ) -> None:
        """An operator's wish stands beside what the node says; a node on its way out stays so."""
        node = self.nodes.get(name)
        if node is None:
            expect(reply, "NODE_NOT_FOUND")
        elif epoch not in (0, node.epoch):
            expect(reply, "NODE_EPOCH_OLD")
        else:
            expect(reply, "ok")
            if by_operator:
                if health == lua.READY:
                    node.drain = None
                elif not node.drained:
                    node.drain = (self.now, node.used)
                node.drained = health != lua.READY
            elif not node.is_out:
                node.health = health

    def remove(
        self,
        name: str,
        epoch: int,
        forget: bool,
        step: int,
        silent_ms: int,
        *,
        reply: tuple[str, int, int, int],
        pools: set[str],
    ) -> None:
        """One step out. Which pools it leaves is left to chance: `pools` are those it is in now."""
        node = self.nodes.get(name)
        if node is None:
            expect(reply, ("ok", 0, 0, 0))
        elif epoch not in (0, node.epoch):
            expect(reply, ("NODE_EPOCH_OLD", 0, 0, 0))
        elif silent_ms and node.beat > self.now - silent_ms:
            expect(reply, ("alive", 0, 0, 0))
        else:
            left = min(step, len(node.pools))
            remain = len(node.pools) - left
            expect(reply, ("ok", 1, left, remain))
            if not pools <= node.pools or len(pools) != remain:
                raise Broken(f"{name} was in {node.pools}, left {left} and is in {pools}")
            node.places = {pool: node.places[pool] for pool in pools}
            node.health = lua.LEAVING if remain else lua.OUT
            if forget and not remain:
                del self.nodes[name]

    def sweep(self, *, reply: lua.Swept) -> None:
        """Names whose time is over."""
        limits, expel, forget = self.limits, set(), set()
        since = self._hearing_since()
        for name, node in self.nodes.items():
            silent, unheard = self.now - node.beat, self.now - max(node.beat, since)
            if node.health == lua.OUT:
                if silent > limits.forget_ms:
                    forget.add(name)
            elif (
                node.health == lua.LEAVING
                or unheard > limits.stale_ms
                or silent > limits.forget_ms
                or (node.health == lua.OFFLINE and unheard > limits.reconnect_grace_ms)
            ):
                expel.add(name)
        expect(reply, lua.Swept("0", expel, forget))

    def _hearing_since(self) -> int:
        """Since when heartbeats have arrived without a gap; now, if none arrive."""
        since, last = self.hearing
        return since if self.now - last <= self.limits.stale_ms / 2 else self.now

    # Choice.

    def select(self, want: Want, *, reply: Chosen | Refused) -> None:
        """Chooses as allocate would."""
        self._choose(want, may_wait=False).check(reply)
        if isinstance(reply, Chosen):
            node = self.nodes[reply.node]
            expect((reply.epoch, reply.owner, reply.address), self._contact(node))

    def _choose(self, want: Want, *, may_wait: bool) -> Choice:
        choice = Choice()
        if self._by_binding(want, choice, may_wait) or self._by_preference(want, choice):
            return choice
        shards = [(pool, shard) for pool in want.pools for shard in self.shards.get(pool, ())]
        path = lua.BY_POOL
        if not shards:
            path = lua.BY_FALLBACK
            shards = [("", {name for name, node in self.nodes.items() if _capable(node, want)})]
        barren = []
        for pool, entries in shards:
            tallies = []
            nodes = {entry for entry in entries if entry[0] not in "+@"}
            owned = [
                self.shards[pool + entry] if entry[0] == "@" else [{entry[1:]}]
                for entry in entries - nodes
            ]
            for drawn in product(*owned):
                groups = [group for group in (nodes, *drawn) if group]
                everyone = [name for group in groups for name in group]
                for left_out in self._ejections(everyone, want):
                    found = [self._ranks(group, want, left_out) for group in groups]
                    for ranks, _ in found:
                        choice.nodes |= dict.fromkeys(moves.best(ranks), path)
                    if not any(ranks for ranks, _ in found):
                        tallies.append(sum((tally for _, tally in found), Counter()))
            # An owner whose turn it is, or that has more nodes than were drawn, is looked at again.
            for group in (group for groups in owned for group in groups):
                ranks, _ = self._ranks(group, want, set(self.nodes))
                choice.nodes |= dict.fromkeys(moves.best(ranks), path)
            if tallies:
                barren.append(tallies)
        choice.refusals = [_refusal(drawn) for drawn in _draws(barren)]
        if path == lua.BY_POOL and want.instance:
            self._add_moves(want, choice, shards)
        return choice

    def _add_moves(
        self, want: Want, choice: Choice, shards: Sequence[tuple[str, set[str]]]
    ) -> None:
        """Replaces nodes that were drawn by those of the asking dispatcher that may get the job."""
        for name in choice.nodes:
            node = self.nodes[name]
            mark = "@" if any(node.places.get(pool) for pool in want.pools) else ""
            found: set[str] = set()
            may_gain = moves.may_gain(self.ledgers, want.pools[0], mark + want.instance)
            if node.owner != want.instance and may_gain:
                found = self._nearby_owned(want, shards) if mark else set()
                for _, entries in () if mark else shards:
                    found |= self._nearby(want, entries, node)
            for other in found:
                choice.moves.setdefault(other, set()).add(mark + node.owner)
            # A shard that is all there is, is searched without chance.
            if not found or mark or len(shards) > 1:
                choice.moves.setdefault(name, set()).add("")
        choice.nodes = dict.fromkeys(choice.moves, lua.BY_POOL)

    def _nearby(self, want: Want, entries: set[str], drawn: Node) -> set[str]:
        """The nodes without an owner that one shard offers in place of the one drawn."""
        plain = {entry for entry in entries if entry[0] not in "+@"}
        ranks, _ = self._ranks(plain, want, set(self.nodes))
        near = [name for name in ranks if self.nodes[name].owner == want.instance]
        than = self._rank(drawn)
        return {
            name
            for name in moves.best(ranks, near)
            if moves.about_as_idle(ranks[name], self.nodes[name].most, than)
        }

    def _nearby_owned(self, want: Want, shards: Sequence[tuple[str, set[str]]]) -> set[str]:
        """The nodes of owners that may be found: about as idle as the owner's best."""
        found = set()
        for pool, entries in shards:
            for entry in entries:
                groups = self.shards[pool + entry] if entry[0] == "@" else [{entry[1:]}]
                for group in groups if entry[0] in "+@" else ():
                    ranks, _ = self._ranks(group, want, set(self.nodes))
                    than = min(ranks.values(), default=(0.0, 0))
                    found |= {
                        name
                        for name, rank in ranks.items()
                        if self.nodes[name].owner == want.instance
                        and moves.about_as_idle(rank, self.nodes[name].most, than)
                    }
        return found

    def _ejections(self, names: Iterable[str], want: Want) -> Iterator[set[str]]:
        """Which ejected nodes may be left out: chance decides if there are too many of them."""
        drawn = list(names)
        ejected = [name for name in drawn if self._unfit(name, want) == "ejected"]
        most = int(self.limits.eject_max_share * len(drawn))
        yield from map(set, combinations(ejected, min(most, len(ejected))))

    def _ranks(
        self, names: Iterable[str], want: Want, left_out: set[str]
    ) -> tuple[dict[str, tuple[float, int]], Counter[str]]:
        """Who may be chosen, the best first, and why the others may not."""
        ranks, tally = {}, Counter[str]()
        for name in names:
            tally["drawn"] += 1
            if why := self._unfit(name, want, spared=name not in left_out):
                tally[why] += 1
            else:
                ranks[name] = self._rank(self.nodes[name])
        return ranks, tally

    def _by_binding(self, want: Want, choice: Choice, may_wait: bool) -> bool:
        turn = self.turns.get(want.turn) if want.turn else None
        if turn is None or not turn.kind or turn.until <= self.now:
            return False
        choice.binding_kind = 1 if turn.kind == "timeout" else 2
        node = self.nodes.get(turn.node)
        if turn.node in want.exclude or (want.strict and want.preferred != turn.node):
            choice.binding = lua.EXCLUDED
        elif node is None or not self._in_pools(node, want) or self._unable(node, want):
            choice.binding = lua.UNAVAILABLE
            if may_wait and node is not None and self._in_pools(node, want) and self._is_away(node):
                is_offline = node.health == lua.OFFLINE
                waits_for = "disconnected" if is_offline else "silent"
                choice.refusals = [Refused("BOUND_NODE_FULL", {turn.node: waits_for})]
                return True
        elif node.has_room:
            choice.binding = lua.HIT
            path = lua.BY_TIMEOUT if turn.kind == "timeout" else lua.BY_MAX_DURATION
            choice.nodes = {turn.node: path}
            return True
        else:
            choice.binding = lua.FULL
            if may_wait:
                node.kept = self.now + KEEP_SLOT_MS
                choice.refusals = [Refused("BOUND_NODE_FULL", {turn.node: "full"})]
                return True
        return False

    def _by_preference(self, want: Want, choice: Choice) -> bool:
        if not want.preferred:
            return False
        node = self.nodes.get(want.preferred)
        if node is None or not self._in_pools(node, want):
            choice.refusals = [Refused("PREFERRED_NODE_NOT_CAPABLE", {})]
            return True
        if want.preferred in want.exclude:
            why = "excluded"
        elif self._unable(node, want):
            why = "unavailable"
        elif not node.has_room_beside_turns(self.now):
            why = "full"
        else:
            choice.nodes = {want.preferred: lua.BY_PREFERRED}
            return True
        if want.strict:
            choice.refusals = [Refused("ALL_CANDIDATES_FULL_OR_FAILED", {why: 1, "drawn": 1})]
        return want.strict

    def _in_pools(self, node: Node, want: Want) -> bool:
        return not node.pools.isdisjoint(want.pools)

    def _is_away(self, node: Node) -> bool:
        """Whether it was there a moment ago, and may be back in the next."""
        is_stale = node.health == lua.READY and node.beat <= self.now - self.limits.stale_ms
        return not node.drained and (node.health == lua.OFFLINE or is_stale)

    def _unable(self, node: Node, want: Want) -> str:
        """Why nobody may choose the node, not even by name."""
        if node.health != lua.READY or node.drained:
            return "not_ready"
        if node.beat <= self.now - self.limits.stale_ms:
            return "stale"
        if want.stages & ~node.declared.stages:
            return "stage"
        return ""

    def _unfit(self, name: str, want: Want, *, spared: bool = False) -> str:
        """Why the draw does not take the node; spared: though it is ejected."""
        node = self.nodes[name]
        if name in want.exclude:
            return "excluded"
        if why := self._unable(node, want):
            return why
        if node.load > self.limits.load_threshold:
            return "overloaded"
        if node.ejected > self.now and not spared:
            return "ejected"
        return "" if node.has_room_beside_turns(self.now) else "full"

    def _rank(self, node: Node) -> tuple[float, int]:
        return node.used / node.most, (self.now - node.beat) // (self.limits.stale_ms // 3)

    # Leases.

    def allocate(
        self,
        name: str,
        asked: int,
        want: Want,
        *,
        utterance: int,
        reason: int,
        may_wait: bool,
        session_epoch: int,
        home: str,
        reply: Placed | Refused,
    ) -> None:
        """One live attempt a job unless a later one is asked for; use the binding, then move it."""
        epoch = self.session_epochs.get(want.session, 0) if session_epoch else 0
        if epoch > session_epoch:
            expect(reply, Refused("SESSION_TAKEN_OVER", {}))
            return
        job = self.jobs.get(name)
        if job and job.over:
            expect(reply, self._ended(job))
            return
        if job:
            number = self._under_way(job, asked)
            if number:
                job.home = home
                expect(reply, self._existing(name, job, number))
                return
        choice = self._choose(want, may_wait=may_wait)
        choice.check(reply)
        if isinstance(reply, Refused):
            return
        for account in choice.moves.get(reply.node, ()):
            to = "@" * account.startswith("@") + want.instance
            self.next_ledgers.append(
                moves.after_move(self.ledgers, want.pools[0], to, account)
                if account
                else self.ledgers
            )
        attempt = max(asked, job.latest + 1) if job else asked
        ends = self.now + self.limits.reservation_ttl_ms
        node = self.nodes[reply.node]
        told = (reply.existing, reply.attempt, reply.state, reply.ends)
        expect(told, (False, attempt, "reserved", ends))
        expect((reply.epoch, reply.owner, reply.address), self._contact(node))
        if job and job.state == "unplaced":
            job.error = None
        turn = self.turns[want.turn] if want.turn and reply.binding == lua.HIT else None
        began = turn.name if turn and turn.name else name
        created = job.about.created if job and job.about and job.latest else self.now
        job = self._reserve(name, attempt, reply.node, reply.path)
        job.attempts[attempt].turn = began if began != name else ""
        job.home = home
        job.turn = want.turn
        job.utterance = utterance
        told_of = (want.tenant, want.session, utterance, want.src, want.tgt, reason)
        job.about = About(*told_of, created)
        self._changes(name, job, attempt, reply.node)
        self._turn_moves(want, utterance, reason, reply.node, began)

    def _under_way(self, job: Job, asked: int) -> int:
        """The attempt that answers for the job, or 0 where another one is due."""
        for number in (job.winner or job.latest, job.latest, asked):
            if held := self._alive(job, number):
                hedges = held == "reserved" and asked > number
                if not hedges:
                    return number
        return 0

    def _alive(self, job: Job, number: int) -> str:
        """Whether the attempt holds a slot, and which kind."""
        attempt = job.attempts.get(number)
        node = self.nodes.get(attempt.node) if attempt else None
        if not attempt or not node:
            return ""
        name = next(name for name, other in self.jobs.items() if other is job)
        leases = {"reserved": node.reserved, "running": node.running}.get(attempt.state, {})
        return attempt.state if f"{name}:{number}" in leases else ""

    def _existing(self, name: str, job: Job, number: int) -> Placed:
        attempt = job.attempts[number]
        node, lease = self.nodes[attempt.node], f"{name}:{number}"
        state = {"reserved": "reserved", "running": "acked"}[attempt.state]
        ends = (node.reserved if state == "reserved" else node.running)[lease]
        contact, path = self._contact(node), attempt.path or 0
        return Placed(True, number, state, ends, attempt.node, *contact, path, lua.NONE, 0)

    def _ended(self, job: Job) -> Placed:
        number = job.winner or job.latest
        attempt = job.attempts.get(number, Attempt("", ""))
        node = self.nodes.get(attempt.node)
        contact, path = self._contact(node) if node else (0, "", ""), attempt.path or 0
        told = (attempt.node, *contact, path, lua.NONE, 0, job.error or "")
        return Placed(True, number, job.state, 0, *told)

    def _contact(self, node: Node) -> tuple[int, str, str]:
        return node.epoch, node.owner, node.address

    def _reserve(self, name: str, attempt: int, node: str, path: int) -> Job:
        job = self.jobs.setdefault(name, Job(0))
        job.state, job.latest = "reserved", attempt
        job.expires = self.now + self.limits.record_ttl_ms
        job.attempts[attempt] = Attempt(node, "reserved", path)
        ends = self.now + self.limits.reservation_ttl_ms
        self.nodes[node].reserved[f"{name}:{attempt}"] = ends
        return job

    def _turn_moves(self, want: Want, utterance: int, reason: int, node: str, began: str) -> None:
        if want.turn is None or reason == lua.UNSPECIFIED:
            return
        turn = self.turns.get(want.turn)
        if turn and utterance < turn.utterance:
            return
        kind = ""
        if reason in (lua.MAX_DURATION, lua.MAX_LENGTH):
            kind = "max_duration"
        elif reason in (lua.TIMEOUT, lua.INTERRUPTED) and self.limits.timeout_binds:
            kind = "timeout"
        goes_on = turn and (self._is_bound(turn) or utterance == turn.utterance)
        self._bind(want.turn, utterance, kind, node, turn.holds if turn and goes_on else 0, began)

    def _is_bound(self, turn: Turn) -> bool:
        return bool(turn.kind) and turn.until > self.now

    def _bind(
        self, key: TurnKey, utterance: int, kind: str, node: str, holds: int, began: str = ""
    ) -> None:
        until = self.now + self.limits.binding_ttl_ms
        self.turns[key] = Turn(utterance, until, holds=holds)
        if kind:
            self.turns[key] = Turn(utterance, until, kind, node, until, holds, began)

    def reserve(self, name: str, job_name: str, number: int, *, reply: Held | Refused) -> None:
        """A slot on the named node, unless the attempt has one or its time is over."""
        job = self.jobs.get(job_name)
        if job:
            attempt = job.attempts.get(number)
            held = self._alive(job, number)
            over = attempt and attempt.state in COMPLETED | {"released"}
            if held or job.over or over or number < job.latest:
                at = attempt.node if attempt else name
                node = self.nodes.get(at)
                ends = 0
                if held and node:
                    ends = getattr(node, held)[f"{job_name}:{number}"]
                contact = self._contact(node) if node else (0, "", "")
                expect(reply, Held(True, ends, at, *contact))
                return
        node = self.nodes.get(name)
        if node is None:
            expect(reply, Refused("NODE_NOT_FOUND", {}))
        elif self._unable(node, Want()):
            expect(reply, Refused("ALL_CANDIDATES_FULL_OR_FAILED", {"unavailable": 1}))
        elif not node.has_room_beside_turns(self.now):
            expect(reply, Refused("ALL_CANDIDATES_FULL_OR_FAILED", {"full": 1}))
        else:
            ends = self.now + self.limits.reservation_ttl_ms
            expect(reply, Held(False, ends, name, *self._contact(node)))
            self._reserve(job_name, number, name, lua.BY_NAME)

    def commit(self, name: str, job_name: str, number: int, *, reply: tuple[str, int]) -> None:
        """One attempt of a job is committed; what was over comes back only into free room."""
        job = self.jobs.get(job_name)
        attempt = job.attempts.get(number) if job else None
        node = self.nodes.get(name)
        lease = f"{job_name}:{number}"
        if job and self._superseded(job, number, name):
            already = job.over and job.winner == number and attempt and attempt.node == name
            expect(reply, ("already" if already else "superseded", 0))
        elif node is None:
            # It runs all the same; its next beat brings the lease.
            expect(reply, ("committed_late", self.now + self.limits.running_lease_ms))
            self._committed(job_name, number, name)
        elif lease in node.running:
            expect(reply, ("already", node.running[lease]))
        elif lease not in node.reserved and not node.has_room:
            expect(reply, ("no_room", 0))
        else:
            ends = self.now + self.limits.running_lease_ms
            expect(reply, ("committed" if lease in node.reserved else "committed_late", ends))
            node.reserved.pop(lease, None)
            node.running[lease] = ends
            self._committed(job_name, number, name)

    def _committed(self, job_name: str, number: int, name: str) -> None:
        job = self.jobs.setdefault(job_name, Job(0))
        attempt = job.attempts.get(number)
        job.state, job.winner = "acked", number
        if job.latest > number and self.nodes.get(name):
            self._turn_follows(job_name, number, name)
        job.latest = max(job.latest, number)
        job.attempts[number] = self._ends(attempt, name, "running")
        job.expires = self.now + self.limits.record_ttl_ms

    def _turn_follows(self, name: str, number: int, winner: str) -> None:
        """The binding that went along with a hedge belongs to the node that was faster."""
        job = self.jobs[name]
        loser, attempt = job.attempts[job.latest].node, job.attempts.get(number)
        turn = self.turns.get(job.turn) if job.turn else None
        if turn and turn.kind and turn.utterance == job.utterance and turn.node == loser:
            turn.node = winner
            turn.name = attempt.turn if attempt and attempt.turn else name

    @staticmethod
    def _ends(attempt: Attempt | None, node: str, state: str) -> Attempt:
        """The attempt in another state; it may not have been known."""
        return replace(attempt, node=node, state=state) if attempt else Attempt(node, state)

    def _superseded(self, job: Job, number: int, name: str) -> bool:
        attempt = job.attempts.get(number)
        if (attempt and attempt.node != name) or job.over:
            return True
        if job.winner and job.winner != number and self._alive(job, job.winner):
            return True
        if attempt and attempt.state in COMPLETED:
            return True
        given_up = attempt is not None and attempt.state == "released"
        return given_up and job.latest != number and bool(self._alive(job, job.latest))

    def release(
        self,
        name: str,
        job_name: str,
        number: int,
        fault: bool,
        final: str,
        may_run: bool,
        *,
        reply: str,
    ) -> None:
        """Frees what is reserved and not committed; a fault counts once.

        may_run: the node may have it, so its slot is left as it is.
        """
        job, node, lease = self.jobs.get(job_name), self.nodes.get(name), f"{job_name}:{number}"
        if node and lease in node.running:
            expect(reply, "running")
            return
        if node and lease in node.reserved:
            expect(reply, "left" if may_run else "released")
            if not may_run:
                del node.reserved[lease]
        else:
            expect(reply, "nothing")
        if job is None:
            return
        attempt = job.attempts.get(number)
        first_time = attempt is not None and attempt.state == "reserved" and attempt.node == name
        if attempt and first_time:
            attempt.state = "released"
            if node and fault:
                self._failed(node, job_name)
        ends = bool(final) and not job.over
        if ends:
            job.state = final
        elif first_time and job.state == "reserved" and job.latest == number:
            job.state = "retrying"
        if first_time or ends:
            at, outcome = attempt.node if attempt else name, "released" if first_time else ""
            self._changes(job_name, job, number, at, outcome)

    def complete(
        self,
        name: str,
        job_name: str,
        number: int,
        outcome: str,
        *,
        final: str,
        bad_job: bool,
        kind: int,
        reply: tuple[str, str],
    ) -> None:
        """Frees the slot; the first end of an attempt counts, and one attempt finishes a job."""
        job, node, lease = self.jobs.get(job_name), self.nodes.get(name), f"{job_name}:{number}"
        attempt = job.attempts.get(number) if job else None
        elsewhere = attempt is not None and attempt.node != name
        ended = attempt is not None and attempt.state in COMPLETED
        if node:
            node.reserved.pop(lease, None)
            node.running.pop(lease, None)
            if not ended and not elsewhere:
                self._counts(node, job_name, outcome, bad_job)
        if job and elsewhere:
            expect(reply, ("superseded", job.state))
            return
        if job and ended:
            lost = job.state == "done" and job.winner != number
            expect(reply, ("superseded" if lost else "already", job.state))
            return
        if job is None:
            job = self.jobs[job_name] = Job(0)
        job.attempts[number] = self._ends(attempt, name, outcome)
        job.expires = self.now + self.limits.record_ttl_ms
        if job.over:
            expect(reply, ("superseded", job.state))
            self._changes(job_name, job, number, name, outcome)
            return
        if outcome == "done":
            if node and job.winner != number and job.latest > number:
                self._turn_follows(job_name, number, name)
            job.state, job.winner = "done", number
        elif final:
            job.state = final
        elif job.winner in (None, number) and job.state != "unplaced":
            job.state = "retrying"
        if job.winner == number and outcome != "done":
            job.winner = None
        job.latest = max(job.latest, number)
        expect(reply, ("completed", job.state))
        self._changes(job_name, job, number, name, outcome, kind=kind if outcome == "done" else 0)

    def end_job(
        self, name: str, state: str, home: str, error: str, reason: int, *, reply: tuple[str, str]
    ) -> None:
        """The first end of a job stays; a dispatcher ends no job that another one has."""
        job = self.jobs.get(name)
        if job and job.home not in (None, home):
            expect(reply, ("superseded", job.state))
            return
        if job and (job.state == "done" or (job.over and job.error is not None)):
            expect(reply, ("already", job.state))
            return
        if job is None:
            job = self.jobs[name] = Job(0)
        if job.home is None:
            job.home = home
        if job.about is None:
            job.about = About("t1", "", 0, "zh", "en", lua.UNSPECIFIED, self.now)
        before = (job.state, job.error)
        job.state = job.state if job.over else state
        job.error = error
        limits = self.limits
        job.expires = self.now + (limits.record_ttl_ms if job.latest else limits.unplaced_ttl_ms)
        expect(reply, ("ended", job.state))
        if before != (job.state, job.error):
            at = job.attempts[job.latest].node if 0 < job.latest <= LOGGED_ATTEMPTS else ""
            self._changes(name, job, job.latest, at, error=reason)

    def _changes(
        self,
        name: str,
        job: Job,
        attempt: int,
        node: str,
        outcome: str = "",
        *,
        error: int = 0,
        kind: int = 0,
    ) -> None:
        """The change goes to the log."""
        about = map(str, job.about or [""] * len(About._fields))
        parts = [name, job.state, self.now, attempt, node, outcome, job.latest, *about]
        self.next_changes.append([*map(str, parts), str(error or ""), str(kind or "")])

    def _counts(self, node: Node, job_name: str, outcome: str, bad_job: bool) -> None:
        if outcome == "done":
            node.failures = node.ejections = node.ejected = 0
        elif outcome != "cancelled" and not bad_job:
            self._failed(node, job_name)

    def _failed(self, node: Node, job_name: str) -> None:
        """A failure counts, unless it is of the same session as the one before."""
        limits, job = self.limits, self.jobs.get(job_name)
        source = ":".join(job.turn[:2]) if job and job.turn else job_name
        blamed = int(hashlib.sha1(source.encode()).hexdigest()[:8], 16)
        if node.failures and node.blamed == blamed:
            return
        node.blamed = blamed
        node.failures += 1
        if node.failures >= limits.eject_failures and node.ejected <= self.now:
            node.ejected = self.now + min(limits.eject_ms * 2**node.ejections, limits.eject_max_ms)
            node.ejections += 1

    # Turns.

    def bind(self, key: TurnKey, kind: str, name: str, utterance: int, *, reply: str) -> None:
        """The node keeps audio; ignored if a later utterance was placed, or too often in a row."""
        turn, node = self.turns.get(key), self.nodes.get(name)
        late = turn is not None and utterance < turn.utterance
        if node is None or node.is_out or late:
            expect(reply, "late")
            return
        holds, is_repeat = 0, False
        if turn:
            holds = turn.holds
            held_already = self._is_bound(turn) and turn.kind == "timeout" and turn.node == name
            is_repeat = held_already and turn.utterance == utterance
        holds += kind == "timeout" and not is_repeat
        if kind == "timeout" and not is_repeat and holds > self.limits.held_in_row_max:
            expect(reply, "limit")
            return
        expect(reply, "bound")
        self._bind(key, utterance, kind, name, holds)

    def clear(self, keys: Iterable[TurnKey], *, reply: int) -> None:
        """Bindings go, the place of the turn stays."""
        cleared = 0
        for key in keys:
            if turn := self.turns.get(key):
                cleared += bool(turn.kind and turn.until > self.now)
                turn.kind, turn.node, turn.until, turn.name, turn.holds = "", "", 0, "", 0
        expect(reply, cleared)


def _capable(node: Node, want: Want) -> bool:
    return not node.declared.pools().isdisjoint(want.pools)


def _draws(barren: Sequence[Sequence[Counter[str]]]) -> Iterator[Counter[str]]:
    """What a draw may have counted that saw nothing but barren shards, each counted in some way."""
    for seen in range(1, MAX_SHARDS + 1):
        for shards in combinations(barren, seen):
            for counted in product(*shards):
                yield sum(counted, Counter())


def _refusal(tally: Counter[str]) -> Refused:
    unable = tally["drawn"] == tally["stage"]
    reason = "NO_CAPABLE_NODE" if unable else "ALL_CANDIDATES_FULL_OR_FAILED"
    return Refused(reason, {why: times for why, times in tally.items() if times})
