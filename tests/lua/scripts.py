"""A synchronous driver for the scripts: one method a script, on a clock that tests move."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import redis

from lingua_scheduler.services.pool_service.fleet.live import LiveNode
from lingua_scheduler.services.runtime.contract.capabilities import Capabilities
from lingua_scheduler.services.runtime.redis import script_calls
from lingua_scheduler.services.runtime.redis.scripts import load_scripts, packaged_root

CLOCK = Path(__file__).with_name("clock")
START_MS = 1_800_000_000_000

READY, DEGRADED, DRAINING, OFFLINE, LEAVING, OUT = range(1, 7)
UNSPECIFIED, IS_FINAL, TIMEOUT, MAX_DURATION, MAX_LENGTH, SESSION_CLOSE, INTERRUPTED = range(7)
BY_PREFERRED, BY_TIMEOUT, BY_MAX_DURATION, BY_POOL, BY_FALLBACK, BY_NAME = range(1, 7)
NONE, HIT, UNAVAILABLE, FULL, EXCLUDED = range(1, 6)
ASR, SEMANTIC, NMT, TTS, TONE = (1 << bit for bit in range(5))


@dataclass(frozen=True)
class Limits:
    """The settings that scripts take as arguments, with the defaults of the services."""

    sample_k: int = 20
    pool_size: int = 100
    max_pools: int = 1000
    stale_ms: int = 15_000
    load_threshold: float = 0.9
    reservation_ttl_ms: int = 5_000
    running_lease_ms: int = 60_000
    binding_ttl_ms: int = 300_000
    timeout_binds: bool = False
    held_in_row_max: int = 4
    record_ttl_ms: int = 600_000
    unplaced_ttl_ms: int = 60_000
    log_max: int = 50_000
    eject_failures: int = 3
    eject_ms: int = 30_000
    eject_max_ms: int = 300_000
    eject_max_share: float = 0.5
    reconnect_grace_ms: int = 5_000
    forget_ms: int = 3_600_000
    owner_nodes: int = 100
    owner_slots: int = 1000
    many_cells: bool = False


class Registered(NamedTuple):
    """A node is known."""

    epoch: int
    in_place: bool


class Chosen(NamedTuple):
    """A node was chosen, and nothing reserved."""

    node: str
    epoch: int
    owner: str
    address: str
    path: int
    binding: int
    binding_kind: int


class Placed(NamedTuple):
    """An attempt has a node."""

    existing: bool
    attempt: int
    state: str
    ends: int
    node: str
    epoch: int
    owner: str
    address: str
    path: int
    binding: int
    binding_kind: int
    # Of a job that is over: why.
    error: str = ""


class Held(NamedTuple):
    """An attempt has a slot on the node that was named."""

    existing: bool
    ends: int
    node: str
    epoch: int
    owner: str
    address: str


class Refused(NamedTuple):
    """A script refused, and counted why; of a bound node it says what the job may wait for."""

    reason: str
    tally: Mapping[str, int | str]


class Swept(NamedTuple):
    """Whose time is over."""

    cursor: str
    expel: set[str]
    forget: set[str]


def able(
    asr: Iterable[str] = ("zh", "en"),
    semantic: Iterable[str] | None = None,
    tts: Iterable[str] = ("zh", "en"),
    nmt: Iterable[str] = (),
    stages: int = ASR | SEMANTIC | NMT | TTS,
) -> Capabilities:
    """What a node declares; without `semantic`, it repairs what it recognises."""
    asr = tuple(sorted(asr))
    repaired = asr if semantic is None else tuple(sorted(semantic))
    return Capabilities(asr, repaired, tuple(sorted(tts)), tuple(sorted(nmt)), stages)


class Scripts:
    """The scripts on one prefix. `sources` stands in for the real ones."""

    def __init__(
        self,
        client: redis.Redis,
        prefix: str,
        *,
        limits: Limits | None = None,
        sources: Mapping[str, str] | None = None,
    ) -> None:
        self.client = client
        self.prefix = prefix
        self.limits = limits or Limits()
        self._sources = sources or clocked_scripts()
        self._shas = {
            name: hashlib.sha1(source.encode()).hexdigest()
            for name, source in self._sources.items()
        }
        client.set(f"{prefix}:test:now_ms", START_MS)
        self.now = START_MS
        self.turn_id = ""
        """Of the last allocation."""
        self._seed = 0

    def with_limits(self, **changes: Any) -> Self:
        """The same driver, with other settings from now on."""
        self.limits = replace(self.limits, **changes)
        return self

    def call(self, name: str, *args: str | bytes | int | float) -> Any:
        """A script's raw reply."""
        try:
            return self.client.evalsha(self._shas[name], 1, self.prefix, *args)
        except redis.exceptions.NoScriptError:
            self.client.script_load(self._sources[name])
            return self.client.evalsha(self._shas[name], 1, self.prefix, *args)

    def call_all(self, calls: Sequence[script_calls.Words]) -> list[Any]:
        """The raw replies of many calls that are sent together."""
        pipeline = self.client.pipeline(transaction=False)
        for name in {str(name) for name, *_ in calls}:
            pipeline.script_load(self._sources[name])
        for name, *args in calls:
            pipeline.evalsha(self._shas[str(name)], 1, self.prefix, *args)
        return list(pipeline.execute())[-len(calls) :]

    def sha(self, name: str) -> str:
        """The digest of a script, loaded, for those who call it themselves."""
        return str(self.client.script_load(self._sources[name]))

    def key(self, *parts: str | int) -> str:
        """A key under the prefix."""
        return ":".join([self.prefix, *map(str, parts)])

    # The clock.

    def advance(self, ms: int) -> None:
        """Moves the clock, and takes away what has expired."""
        self.now += ms
        self.client.set(self.key("test", "now_ms"), self.now)
        expires = self.key("test", "expires")
        if gone := self.client.zrangebyscore(expires, "-inf", self.now):
            self.client.delete(*gone)
            self.client.zrem(expires, *gone)

    # Nodes.

    def register(
        self,
        node: str,
        capabilities: Capabilities | None = None,
        *,
        incarnation: str = "i1",
        stream: str = "s1",
        health: int = READY,
        load: float = 0.0,
        most: int = 2,
        owner: str = "d1",
        address: str = "d1:1",
        node_owner: str = "",
        before: tuple[int, int] = (0, 0),
        elsewhere: tuple[int, int] = (0, 0),
        running: Sequence[str] = (),
        finished: Sequence[str] = (),
    ) -> Registered | Refused:
        """Makes a node known; its pools are another step (`join`)."""
        capabilities = capabilities or able()
        limits = self.limits
        register = script_calls.RegisterNode(
            heartbeat_stale_ms=limits.stale_ms,
            running_lease_ms=limits.running_lease_ms,
            owner_nodes=limits.owner_nodes,
            owner_slots=limits.owner_slots,
        )
        reply = self.call(
            *register.call(
                node_id=node,
                incarnation=incarnation,
                stream=stream,
                health=health,
                load=load,
                max_concurrent_jobs=most,
                stages=capabilities.stages,
                owner_instance=owner,
                owner_address=address,
                asr_langs=_json(capabilities.asr_langs),
                semantic_langs=_json(capabilities.semantic_langs),
                tts_langs=_json(capabilities.tts_langs),
                nmt_pairs=_json(capabilities.nmt_pairs),
                pools_hash=digest(capabilities, node_owner),
                node_owner=node_owner,
                epoch_before=before[0],
                drained_ms_before=before[1],
                owner_nodes_elsewhere=elsewhere[0],
                owner_slots_elsewhere=elsewhere[1],
                running=running,
                finished=finished,
            )
        )
        if reply[0] == b"NODE_ID_CONFLICT":
            return Refused(reply[0].decode(), {reply[1].decode(): 1})
        if refused := _refused(reply):
            return refused
        return Registered(reply[1], bool(reply[2]))

    def move(
        self,
        node: str,
        epoch: int,
        *,
        join: Sequence[str] = (),
        leave: Sequence[str] = (),
        digest: str = "",
    ) -> str:
        """One step between pools. A digest makes it the last one."""
        limits = self.limits
        move = script_calls.MovePools(pool_size=limits.pool_size, max_pools=limits.max_pools)
        call = move.call(node_id=node, epoch=epoch, pools_hash=digest, join=join, leave=leave)
        return str(self.call(*call)[0].decode())

    def join(
        self,
        node: str,
        capabilities: Capabilities | None = None,
        *,
        step: int = 200,
        node_owner: str = "",
        **options: Any,
    ) -> int:
        """Registers a node and takes it to its pools, as the pool service does. Returns the epoch.

        `step` is how many pools one script call moves.
        """
        capabilities = capabilities or able()
        reply = self.register(node, capabilities, node_owner=node_owner, **options)
        assert isinstance(reply, Registered), reply
        if not reply.in_place:
            way = steps(self.places_of(node), capabilities, step, node_owner)
            for joins, leaves, last in way:
                moved = self.move(node, reply.epoch, join=joins, leave=leaves, digest=last)
                assert moved == "ok", moved
        return reply.epoch

    def beat(
        self, *beats: tuple[str, int] | tuple[str, int, Sequence[str]], load: float = 0.0
    ) -> list[tuple[str, ...]]:
        """A batch of heartbeats: (node, epoch) or (node, epoch, leases). Returns the problems."""
        return self.beats([(*beat[:2], 0, load, (beat[2:] or ((),))[0]) for beat in beats])

    def beats(self, beats: Sequence[tuple[Any, ...]]) -> list[tuple[str, ...]]:
        """The same with every field: (node, epoch, health, load, leases)."""
        heartbeat = script_calls.Heartbeat(
            running_lease_ms=self.limits.running_lease_ms, heartbeat_stale_ms=self.limits.stale_ms
        )
        problems = self.call(*heartbeat.call(beats=beats))
        return [tuple(map(bytes.decode, problem)) for problem in problems]

    def set_health(
        self, node: str, health: int, *, epoch: int = 0, by_operator: bool = False
    ) -> str:
        """Health, as a node, its dispatcher or an operator sees it."""
        call = script_calls.set_node_health(
            node_id=node, epoch=epoch, health=health, by_operator=by_operator
        )
        reply = self.call(*call)
        return str(reply[0].decode())

    def remove_step(
        self, node: str, *, epoch: int = 0, forget: bool = True, step: int = 200, silent_ms: int = 0
    ) -> tuple[str, int, int, int]:
        """One step out: (word, existed, pools left, pools that remain)."""
        remove = script_calls.RemoveNode(pools_per_step=step, pool_size=self.limits.pool_size)
        call = remove.call(node_id=node, epoch=epoch, forget=forget, silent_ms=silent_ms)
        reply = self.call(*call)
        word, existed, left, remain = [*reply, 0, 0, 0][:4]
        return word.decode(), existed, left, remain

    def remove(self, node: str, **options: Any) -> str:
        """All steps out. Returns the last step's word."""
        while True:
            word, _, _, remain = self.remove_step(node, **options)
            if word != "ok" or remain == 0:
                return word

    def sweep(self, cursor: str = "0", count: int = 1000) -> Swept:
        """Whose time is over."""
        limits = self.limits
        sweep = script_calls.Sweep(
            nodes_per_step=count,
            heartbeat_stale_ms=limits.stale_ms,
            node_reconnect_grace_ms=limits.reconnect_grace_ms,
            node_forget_ms=limits.forget_ms,
        )
        cursor, expel, forget = self.call(*sweep.call(cursor=cursor))
        names = [set(map(bytes.decode, ids)) for ids in (expel, forget)]
        return Swept(_text(cursor), names[0], names[1])

    # Choice and leases.

    def want(
        self,
        *,
        src: str = "zh",
        tgt: str = "en",
        text: bool = False,
        stages: int = 0,
        preferred: str = "",
        strict: bool = False,
        instance: str = "",
        tenant: str = "t1",
        session: str = "",
        exclude: Sequence[str] = (),
        seed: int | None = None,
    ) -> script_calls.Words:
        """The arguments of lib/want.lua."""
        if seed is None:
            self._seed += 1
            seed = int.from_bytes(hashlib.sha1(b"%d" % self._seed).digest()[:4], "big") >> 1
        limits = self.limits
        want = script_calls.Want(
            sample_k=limits.sample_k,
            pool_size=limits.pool_size,
            heartbeat_stale_ms=limits.stale_ms,
            load_threshold=limits.load_threshold,
            eject_max_share=limits.eject_max_share,
        )
        return want.call(
            seed=seed,
            src=src,
            tgt=tgt,
            require_tts=not text,
            stages=stages,
            preferred=preferred,
            strict=strict,
            instance=instance,
            tenant=tenant,
            session=session,
            excluded=exclude,
        )

    def select(self, **criteria: Any) -> Chosen | Refused:
        """Chooses, and changes nothing. The criteria are those of `want`."""
        reply = self.call(*script_calls.select_node(want=self.want(**criteria)))
        return _refused(reply) or Chosen(*map(_decoded, reply[1:]))

    def allocate(
        self,
        job: str,
        attempt: int = 1,
        *,
        utterance: int = 0,
        reason: int = UNSPECIFIED,
        may_wait: bool = False,
        session_epoch: int = 0,
        home: str = "d1",
        quota: tuple[int, ...] = (),
        **criteria: Any,
    ) -> Placed | Refused:
        """Chooses and reserves. Further criteria are those of `want`.

        quota: max_jobs, max_audio_ms, audio_ms, hold_ms; without limits nothing.
        """
        options = (utterance, reason, may_wait, session_epoch, home, quota)
        reply = self.call(*self.allocation(job, attempt, *options, **criteria))
        if refused := _refused(reply):
            return refused
        existing, *rest, self.turn_id = map(_decoded, reply[1:])
        return Placed(bool(existing), *rest)

    def allocation(
        self,
        job: str,
        attempt: int = 1,
        utterance: int = 0,
        reason: int = UNSPECIFIED,
        may_wait: bool = False,
        session_epoch: int = 0,
        home: str = "d1",
        quota: tuple[int, ...] = (),
        **criteria: Any,
    ) -> script_calls.Words:
        """The words of an allocation, for those who send it themselves."""
        limits = self.limits
        max_jobs, max_audio_ms, audio_ms, hold_ms = quota or (0, 0, 0, 0)
        allocate = script_calls.Allocate(
            hold_ms=hold_ms,
            many_cells=limits.many_cells,
            reservation_ttl_ms=limits.reservation_ttl_ms,
            binding_ttl_ms=limits.binding_ttl_ms,
            timeout_binds=limits.timeout_binds,
            job_record_ttl_ms=limits.record_ttl_ms,
            job_log_max=limits.log_max,
        )
        return allocate.call(
            job=job,
            attempt=attempt,
            key=f"key-of-{job}",
            home=home,
            utterance=utterance,
            session_epoch=session_epoch,
            reason=reason,
            may_wait=may_wait,
            max_jobs=max_jobs,
            max_audio_ms=max_audio_ms,
            audio_ms=audio_ms,
            unbound=0,
            taken_node="",
            taken_cell="",
            taken_path=0,
            want=self.want(**criteria),
        )

    def place(self, job: str, attempt: int = 1, **options: Any) -> Placed:
        """An allocation that must succeed."""
        placed = self.allocate(job, attempt, **options)
        assert isinstance(placed, Placed), placed
        return placed

    def reserve(self, node: str, job: str, attempt: int = 1) -> Held | Refused:
        """A slot on the node that is named."""
        limits = self.limits
        reserve = script_calls.Reserve(
            heartbeat_stale_ms=limits.stale_ms,
            reservation_ttl_ms=limits.reservation_ttl_ms,
            job_record_ttl_ms=limits.record_ttl_ms,
        )
        reply = self.call(*reserve.call(node_id=node, job=job, attempt=attempt))
        if refused := _refused(reply):
            return refused
        existing, *rest = map(_decoded, reply[1:])
        return Held(bool(existing), *rest)

    def commit(self, node: str, job: str, attempt: int = 1) -> tuple[str, int]:
        """The node has acknowledged."""
        limits = self.limits
        commit = script_calls.Commit(
            running_lease_ms=limits.running_lease_ms, job_record_ttl_ms=limits.record_ttl_ms
        )
        outcome, ends = self.call(*commit.call(node_id=node, job=job, attempt=attempt))
        return outcome.decode(), ends

    def release(
        self,
        node: str,
        job: str,
        attempt: int = 1,
        *,
        fault: bool = False,
        final: str = "",
        may_run: bool = False,
    ) -> str:
        """Gives an uncommitted slot back."""
        reply = self.call(*self.returning(node, job, attempt, fault, final, may_run))
        return str(reply[0].decode())

    def returning(
        self,
        node: str,
        job: str,
        attempt: int = 1,
        fault: bool = False,
        final: str = "",
        may_run: bool = False,
    ) -> script_calls.Words:
        """The words of a release, for those who send it themselves."""
        return script_calls.Release(**self._ejection, job_log_max=self.limits.log_max).call(
            node_id=node,
            job=job,
            attempt=attempt,
            why="why",
            is_fault=fault,
            final=final,
            may_run=may_run,
        )

    def complete(
        self,
        node: str,
        job: str,
        attempt: int = 1,
        outcome: str = "done",
        *,
        final: str = "",
        bad_job: bool = False,
        kind: int = 0,
    ) -> tuple[str, str]:
        """The attempt has ended; bad_job: that is no fault of the node."""
        fault = outcome in ("failed", "timed_out") and not bad_job
        complete = script_calls.Complete(
            **self._ejection,
            job_record_ttl_ms=self.limits.record_ttl_ms,
            job_log_max=self.limits.log_max,
        )
        reply = self.call(
            *complete.call(
                node_id=node,
                job=job,
                attempt=attempt,
                outcome=outcome,
                why="why",
                final=final,
                is_fault=fault,
                steps="",
                kind=kind,
            )
        )
        return reply[0].decode(), reply[1].decode()

    def end_job(
        self,
        job: str,
        state: str = "failed",
        *,
        home: str = "d1",
        error: str = "why",
        reason: int = 7,
    ) -> tuple[str, str]:
        """The job has ended without a result."""
        end_job = script_calls.EndJob(
            job_record_ttl_ms=self.limits.record_ttl_ms,
            unplaced_record_ttl_ms=self.limits.unplaced_ttl_ms,
            job_log_max=self.limits.log_max,
        )
        outcome, left = self.call(
            *end_job.call(
                job=job,
                home=home,
                final=state,
                why=error,
                error=reason,
                steps=b"steps",
                key=f"key-of-{job}",
                tenant="t1",
                session="",
                utterance=0,
                src="zh",
                tgt="en",
                reason=UNSPECIFIED,
            )
        )
        return outcome.decode(), left.decode()

    @property
    def _ejection(self) -> dict[str, int]:
        names = ("eject_failures", "eject_ms", "eject_max_ms")
        return {name: getattr(self.limits, name) for name in names}

    # Turns.

    def bind(
        self,
        session: str,
        node: str,
        *,
        utterance: int,
        kind: str = "timeout",
        src: str = "zh",
        tgt: str = "en",
        tenant: str = "t1",
    ) -> str:
        """The node keeps audio of the session: bound, late or limit."""
        return self._bind(
            tenant=tenant,
            session=session,
            src=src,
            tgt=tgt,
            kind=kind,
            node_id=node,
            utterance=utterance,
            job="",
            attempt=0,
        )

    def bind_job(self, job: str, node: str, attempt: int = 1) -> str:
        """The node keeps audio of this attempt: bound, late or limit."""
        return self._bind(
            tenant="",
            session="",
            src="",
            tgt="",
            kind="timeout",
            node_id=node,
            utterance=0,
            job=job,
            attempt=attempt,
        )

    def _bind(self, **arguments: Any) -> str:
        bind = script_calls.BindSession(
            binding_ttl_ms=self.limits.binding_ttl_ms, held_in_row_max=self.limits.held_in_row_max
        )
        return str(self.call(*bind.call(**arguments, cell="")).decode())

    def clear(self, session: str, *pairs: tuple[str, str], tenant: str = "t1") -> int:
        """Forgets bindings; without pairs, those of zh:en."""
        call = script_calls.clear_session(
            tenant=tenant, session=session, directions=pairs or [("zh", "en")]
        )
        return int(self.call(*call))

    # What is in Redis.

    def live(self, node: str) -> LiveNode | None:
        """The moving part of a node."""
        packed = self.client.hget(self.key("nodes", "live"), node)
        return LiveNode.unpack(packed) if packed else None

    def known(self, node: str) -> LiveNode:
        """The moving part of a node that must be there."""
        live = self.live(node)
        assert live is not None, f"{node} is not known"
        return live

    def pools_of(self, node: str) -> dict[str, int]:
        """The pools that a node is in, and its shard in each."""
        return {name: int(place.split("@")[0]) for name, place in self.places_of(node).items()}

    def places_of(self, node: str) -> dict[str, str]:
        """The same, with its owner: "<shard>" or "<shard>@<owner>"."""
        return _strings(self.client.hgetall(self.key("node", node, "pools")))

    def shard(self, pool: str, shard: int = 0) -> set[str]:
        """The nodes of one shard."""
        return set(map(bytes.decode, self.client.smembers(self.key("pool", pool, shard, "nodes"))))

    def leases(self, node: str) -> dict[str, int]:
        """The living leases of a node, of both kinds."""
        return self.reserved(node) | self.running(node)

    def reserved(self, node: str) -> dict[str, int]:
        """The living reservations of a node."""
        return self._living(self.key("node", node, "reserved"))

    def running(self, node: str) -> dict[str, int]:
        """The living leases of what a node has acknowledged."""
        return self._living(self.key("node", node, "running"))

    def holds(self, tenant: str, what: str) -> dict[str, int]:
        """What counts among a tenant's sessions or jobs."""
        return self._living(self.key("tenant", tenant, what))

    def _living(self, key: str) -> dict[str, int]:
        found = self.client.zrange(key, 0, -1, withscores=True)
        return {lease.decode(): int(ends) for lease, ends in found if ends > self.now}

    def job(self, job: str) -> dict[str, str]:
        """The record of a job."""
        return _strings(self.client.hgetall(self.key("job", job)))

    def turn(
        self, session: str, src: str = "zh", tgt: str = "en", tenant: str = "t1"
    ) -> dict[str, str]:
        """The bindings of one direction of a session."""
        return _strings(self.client.hgetall(self.key("turn", tenant, session, src, tgt)))


def clocked_scripts() -> dict[str, str]:
    """The real scripts on the tests' clock."""
    return load_scripts([CLOCK, packaged_root()])


def digest(capabilities: Capabilities, node_owner: str) -> str:
    """What a node's places depend on, as the pool service says it."""
    return f"{capabilities.digest()}@{node_owner}" if node_owner else capabilities.digest()


def steps(
    places: Mapping[str, str], capabilities: Capabilities, size: int, node_owner: str = ""
) -> list[tuple[list[str], list[str], str]]:
    """The way from the places that a node has to the pools it belongs in: (join, leave, digest)."""
    wanted = capabilities.pools()
    has = {name for name, place in places.items() if place.partition("@")[2] == node_owner}
    way = [(True, name) for name in sorted(wanted - has)]
    way += [(False, name) for name in sorted(places.keys() - wanted)]
    cut = [way[at : at + size] for at in range(0, len(way) + 1, size)]
    digests = [""] * (len(cut) - 1) + [digest(capabilities, node_owner)]
    return [
        ([name for joins, name in part if joins], [name for joins, name in part if not joins], last)
        for part, last in zip(cut, digests, strict=True)
    ]


def _refused(reply: list[Any]) -> Refused | None:
    if reply[0] == b"ok":
        return None
    reason = reply[0].decode()
    if reason == "BOUND_NODE_FULL":
        return Refused(reason, {reply[1].decode(): reply[2].decode()})
    tally = {reply[at].decode(): int(reply[at + 1]) for at in range(1, len(reply), 2)}
    return Refused(reason, tally)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _decoded(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


def _strings(found: dict[bytes, bytes]) -> dict[str, str]:
    return {field.decode(): value.decode() for field, value in found.items()}


def _json(codes: tuple[str, ...]) -> str:
    return json.dumps(codes, separators=(",", ":"))
