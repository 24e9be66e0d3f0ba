"""A world for one job on a virtual clock: a pool with leases, faulty nodes, and a gateway.

Whatever may go one way or another is a choice, so a run is determined by its choices (see
`tests.unit.choices`).

Operations reach the pool (`job_store`) after delays of their own, so in any order; answers may be
lost. The home may die with everything that it knows; then the job is submitted to another one, with
the same pool and nodes.
"""

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from lingua_scheduler.services.dispatcher.job import effects as fx
from lingua_scheduler.services.dispatcher.job import endings
from lingua_scheduler.services.dispatcher.job.machine import JobMachine
from lingua_scheduler.services.dispatcher.job.model import JobRules, Phase
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, pool_pb2
from tests.unit.choices import Choices
from tests.unit.dispatcher.job_store import COMMIT, OVER, Record

NODES = ("n1", "n2", "n3", "n4", "n5")
RESERVATION_TTL = 300.0

_STATE = {
    "reserved": common_pb2.JOB_STATE_RESERVED,
    "acked": common_pb2.JOB_STATE_ACKED,
    "done": common_pb2.JOB_STATE_DONE,
    "failed": common_pb2.JOB_STATE_FAILED,
    "cancelled": common_pb2.JOB_STATE_CANCELLED,
}
# The shell records these ends as "unplaced": the job may begin anew.
ALL_FULL = common_pb2.ERROR_REASON_ALL_CANDIDATES_FULL_OR_FAILED
_NO_NODE = {
    ALL_FULL,
    common_pb2.ERROR_REASON_BOUND_NODE_FULL,
    common_pb2.ERROR_REASON_QUOTA_EXCEEDED,
    common_pb2.ERROR_REASON_SCHEDULER_DEPENDENCY_DOWN,
}


class Watch(Protocol):
    """Checks every event of one home, and the state at the end."""

    ended: bool

    def before(self) -> None:
        """An event is about to happen."""

    def after(self, now: float, event: str, number: int, effects: list[fx.Effect]) -> None:
        """The event has happened, with these effects."""

    def at_the_end(self, world: "World") -> None:
        """The run is over."""


Watching = Callable[[JobMachine, JobRules, float | None], Watch]


@dataclass
class Node:
    """A node, and what it knows about the job's attempts."""

    node_id: str
    epoch: int = 1
    connected: bool = True
    # By attempt: running, done or failed; removed when it is confirmed or cancelled.
    knows: dict[int, str] = field(default_factory=dict)


class World:
    """Runs one job to its end and beyond; a watch checks each home."""

    def __init__(self, choices: Choices, watching: Watching) -> None:
        self.choices = choices
        self.homes = 0
        # Attempts that the pool reserved for a home that never got the answer.
        self.unheard: set[int] = set()
        self.now = 0.0
        self.log: list[str] = []
        self.store = Record()
        self.nodes = {name: Node(name) for name in NODES}
        self.kept: dispatcher_pb2.JobResult | None = None
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._seq = 0
        self._watching = watching
        self._result_is_safe = False
        self._alarm = 0
        pick = choices.pick
        self.rules = JobRules(
            ack_timeout_ms=100.0,
            job_timeout_ms=(1000.0, 300.0)[pick(2)],
            queue_wait_ms=(200.0, 0.0, 50.0)[pick(3)],
            other_nodes_wait_ms=(300.0, 0.0, 50.0)[pick(3)],
            affinity_wait_ms=(0.0, 30.0, 500.0)[pick(3)],
            affinity_away_ms=(30.0, 0.0)[pick(2)],
            grace_ms=(250.0, 20.0)[pick(2)],
            hedge_after_ms=(0.0, 40.0, 5.0)[pick(3)],
            max_retry=(2, 0, 1, 3)[pick(4)],
        )
        # With few nodes, a job soon has tried all of them.
        self.fleet = NODES[: (5, 2, 1)[pick(3)]]
        # Runs differ in how much goes wrong: if everything fails, nothing interesting happens.
        self.calm = (40, 12, 4)[pick(3)]
        self.deadline = (None, 700.0, 150.0)[pick(3)]
        self._submit()
        if choices.one_in(4):
            self._after(choices.delay(), self._cancel, any_home=True)
        for _ in range(pick(3)):
            self._after(choices.delay(), self._cut_a_connection, any_home=True)
        for _ in range(pick(3)):
            self._after(choices.delay(), self._garbage, any_home=True)
        if choices.one_in(4):
            self._after(choices.delay(), self._home_dies, any_home=True)

    def run(self) -> None:
        """Runs until nothing is under way."""
        steps = 0
        while self._heap:
            self.now, _, action = heapq.heappop(self._heap)
            action()
            steps += 1
            assert steps < 5000, "the job does not come to an end"
        self.watch.at_the_end(self)

    # ---- the home ----

    def _submit(self) -> None:
        self.homes += 1
        self._alarm = 0
        left = None if self.deadline is None else self.now + self.deadline
        self.machine = JobMachine(rules=self.rules, deadline_ms=left)
        self.watch = self._watching(self.machine, self.rules, left)
        self._tell("start", 0, lambda: self.machine.start(self.now))

    def _tell(self, event: str, number: int, call: Callable[[], list[fx.Effect]]) -> None:
        """Feeds an event to the machine, and carries out its effects."""
        self.watch.before()
        effects = call()
        self.log.append(f"{self.now:8.1f} {event} {number or ''} -> {self.machine.phase.name}")
        self.log.extend(f"{'':12}{_short(effect)}" for effect in effects)
        self.watch.after(self.now, event, number, effects)
        for effect in effects:
            self._carry_out(effect)

    def _after(self, delay: float, action: Callable[[], None], *, any_home: bool = False) -> None:
        """Runs an action later, unless its home has died by then."""
        home = self.homes

        def run() -> None:
            if any_home or home == self.homes:
                action()

        self._seq += 1
        heapq.heappush(self._heap, (self.now + delay, self._seq, run))

    def _home_dies(self) -> None:
        done = self.machine.state == common_pb2.JOB_STATE_DONE and not self._result_is_safe
        if done or not self.watch.ended:
            self.log.append(f"{self.now:8.1f} the home dies; another takes the job")
            self._submit()

    def _cancel(self) -> None:
        self._tell("cancel", 0, lambda: self.machine.on_cancel(self.now, "no longer wanted"))

    # ---- effects ----

    def _carry_out(self, effect: fx.Effect) -> None:  # noqa: C901 - one line an effect
        delay = self.choices.delay
        match effect:
            case fx.Allocate():
                home = self.homes
                self._after(delay(), lambda: self._allocate(effect, home), any_home=True)
            case fx.Send():
                self._after(1.0, lambda: self._assign(effect.attempt))
            case fx.CancelOnNode():
                self._after(1.0, lambda: self._cancel_on_node(effect.attempt), any_home=True)
            case fx.Commit():
                home = self.homes
                self._after(delay(), lambda: self._commit(effect.attempt, home), any_home=True)
            case fx.Release() | fx.Complete():
                if getattr(effect, "cause", 0) == pool_pb2.RELEASE_CAUSE_SEND_FAILED:
                    knows = self.nodes[effect.attempt.node_id].knows
                    assert effect.attempt.number not in knows, "its node has it all the same"
                self._after(delay(), lambda: self._give_back(effect), any_home=True)
            case fx.Confirm():
                self.nodes[effect.node_id].knows.pop(effect.number, None)
            case fx.Locate():
                self._after(10.0, lambda: self._locate(effect.attempt))
            case fx.Wait():
                for _ in range(self.choices.pick(3)):
                    self._after(delay(), self._room)
            case fx.Wake():
                self._wake(effect)
            case fx.FetchKept():
                self._after(delay(), self._fetch)
            case fx.Fail():
                home, why = self.homes, effect.why.reason
                state = "unplaced" if why in _NO_NODE else ""
                state = state or common_pb2.JobState.Name(self.machine.state)[10:].lower()
                self._after(delay(), lambda: self.store.end(state, home), any_home=True)
            case fx.Deliver():
                way = self.choices.pick(3)
                if way < 2:
                    self._after(5.0, lambda: self._safe(effect, is_kept=way == 1))

    def _fetch(self) -> None:
        self._tell("kept", 0, lambda: self.machine.on_kept(self.now, self.kept))

    def _safe(self, delivered: fx.Deliver, *, is_kept: bool) -> None:
        """The gateway took the result, or it was kept for the next one; the node is told."""
        self._result_is_safe = not is_kept
        self.kept = delivered.result if is_kept else None
        attempt = delivered.attempt
        self.nodes[attempt.node_id].knows.pop(attempt.number, None)

    def _wake(self, effect: fx.Wake) -> None:
        self._seq += 1
        seq = self._alarm = self._seq

        def due() -> None:
            if self._alarm == seq:
                timers = self.machine.timers
                kind, number = min(timers, key=timers.__getitem__, default=("", 0))
                is_due = timers.get((kind, number), math.inf) <= self.now
                event = f"timer {kind}" if is_due else "woken"
                self._tell(event, number * is_due, lambda: self.machine.on_wake(self.now))

        self._after(max(0.0, effect.at_ms - self.now), due)

    # ---- the pool ----

    def _allocate(self, asked: fx.Allocate, home: int) -> None:
        answer = self._decide(asked, home)
        is_lost = home != self.homes or self.choices.one_in(self.calm)
        if is_lost and isinstance(answer, pool_pb2.AllocateResponse):
            self.unheard.add(answer.attempt.attempt)
        if home != self.homes:
            return
        if is_lost:
            answer = fx.FailureCause(common_pb2.ERROR_REASON_SCHEDULER_DEPENDENCY_DOWN, "lost")
        self._after(self.choices.delay(), lambda: self._answered(answer))

    def _answered(self, answer: pool_pb2.AllocateResponse | fx.FailureCause) -> None:
        if isinstance(answer, fx.FailureCause):
            name = "refused " + common_pb2.ErrorReason.Name(answer.reason)[13:]
            facts = answer.metadata
            if "drawn" in facts and facts["drawn"] == facts["excluded"]:
                name = "refused ALL_TRIED"
            self._tell(name, 0, lambda: self.machine.on_refused(self.now, answer))
        else:
            name = "had" if answer.existing else "given"
            number = answer.attempt.attempt
            self._tell(name, number, lambda: self.machine.on_allocated(self.now, answer))

    def _decide(self, asked: fx.Allocate, home: int) -> pool_pb2.AllocateResponse | fx.FailureCause:
        store, number = self.store, asked.number
        over = store.state in OVER
        if over and not store.latest:
            return pool_pb2.AllocateResponse(existing=True, state=_STATE[store.state])
        if store.latest:
            for known in (store.winner or store.latest, store.latest, number):
                lease = store.lease(known, self.now)
                runs = store.attempt.get(known) == "running"
                if over or (lease and (runs or number <= known)):
                    state = store.state if over else "acked" if runs else "reserved"
                    store.home = store.home if over else home
                    return self._answer(known, state, 0 if over else lease, existing=True)
            number = max(number, store.latest + 1)
        free = [name for name in self.fleet if name not in asked.exclude]
        if asked.wait_for_bound_node and self.choices.one_in(3):
            waits_for = ("full", "disconnected", "silent")[self.choices.pick(3)]
            metadata = {"waits_for": waits_for}
            return fx.FailureCause(
                common_pb2.ERROR_REASON_BOUND_NODE_FULL, "bound", metadata=metadata
            )
        if not store.latest and self.choices.one_in(self.calm):
            retry_ms = (0, 20, 10_000)[self.choices.pick(3)]
            return fx.FailureCause(common_pb2.ERROR_REASON_QUOTA_EXCEEDED, "quota", retry_ms)
        if not free or self.choices.one_in(self.calm // 2):
            drawn, excluded = str(len(self.fleet)), str(len(self.fleet) - len(free))
            facts = {"drawn": drawn, "excluded": excluded}
            return fx.FailureCause(ALL_FULL, "full", metadata=facts)
        store.node[number] = free[self.choices.pick(len(free))]
        store.attempt[number] = store.state = "reserved"
        store.latest, store.home = number, home
        store.reserved[number] = self.now + RESERVATION_TTL
        return self._answer(number, "reserved", store.reserved[number], existing=False)

    def _answer(
        self, number: int, state: str, lease: float, *, existing: bool
    ) -> pool_pb2.AllocateResponse:
        node = self.nodes[self.store.node[number]]
        return pool_pb2.AllocateResponse(
            attempt=common_pb2.AttemptRef(job_id="job", attempt=number),
            placement=pool_pb2.Placement(node_id=node.node_id, node_epoch=node.epoch),
            state=_STATE[state],
            existing=existing,
            lease_ends_ms=int(lease),
        )

    def _commit(self, attempt: fx.Attempt, home: int) -> None:
        number = attempt.number
        outcome = self.store.commit(number, self.now, not self.choices.one_in(3))
        name = "committed " + COMMIT.Outcome.Name(outcome)[8:]
        self.log.append(f"{self.now:8.1f} store: {number} {name}")
        if home == self.homes and not self.choices.one_in(self.calm):
            call = lambda: self.machine.on_committed(self.now, number, outcome)  # noqa: E731
            self._after(self.choices.delay(), lambda: self._tell(name, number, call))

    def _give_back(self, effect: fx.Release | fx.Complete) -> None:
        final = "" if not effect.final else common_pb2.JobState.Name(effect.final)[10:].lower()
        number = effect.attempt.number
        if isinstance(effect, fx.Release):
            may_run = effect.cause == pool_pb2.RELEASE_CAUSE_CONNECTION_LOST
            self.store.release(number, final, self.now, may_run=may_run)
        else:
            outcome = ("", "done", "failed", "timed_out", "cancelled")[effect.outcome]
            self.store.complete(number, outcome, final)
        self.log.append(f"{self.now:8.1f} store: {type(effect).__name__} {number} {final}")

    def _room(self) -> None:
        self._tell("room", 0, lambda: self.machine.on_room(self.now))

    # ---- nodes ----

    def _assign(self, attempt: fx.Attempt) -> None:
        node, number = self.nodes[attempt.node_id], attempt.number
        if (
            not node.connected
            or node.epoch != attempt.placement.node_epoch
            or self.choices.one_in(self.calm)
        ):
            call = lambda: self.machine.on_send_failed(self.now, number, "not connected")  # noqa: E731
            self._after(1.0, lambda: self._tell("send failed", number, call))
            return
        if number in node.knows:
            self._report(node, "acked", number, 1.0)
            if node.knows[number] != "running":
                self._report(node, node.knows[number], number, 2.0)
            return
        self._begin(node, number)

    def _begin(self, node: Node, number: int) -> None:
        """A node gets an assignment that is new to it."""
        delay = self.choices.delay
        way = self.choices.pick(9) if not self.choices.pick(3) else 0
        if way == 1:
            self._report(node, "rejected", number, delay())
            return
        if way == 2:
            return  # it never answers
        node.knows[number] = "running"
        if way != 3:
            self._report(node, "acked", number, delay())
        if way == 4:
            self._report(node, "acked", number, delay())
        if way == 5:
            self._report(node, "partial", number, delay())
        if way == 6:
            return  # it never ends
        end = ("failed", "hopeless")[self.choices.pick(2)] if way == 7 else "result"
        took = delay() + delay()
        self._report(node, end, number, took)
        if way == 8:
            self._report(node, end, number, took)

    def _report(self, node: Node, what: str, number: int, delay: float) -> None:
        """The node reports something, which takes a moment to arrive."""

        def say() -> None:
            if what != "rejected" and number not in node.knows:
                return  # cancelled, confirmed or forgotten meanwhile
            if what in ("result", "failed", "hopeless"):
                node.knows[number] = what
            if node.connected:
                self._after(1.0, lambda: self._say(node, what, number), any_home=True)

        self._after(delay, say, any_home=True)

    def _say(self, node: Node, what: str, number: int) -> None:
        now, machine = self.now, self.machine
        ref = common_pb2.AttemptRef(job_id="job", attempt=number)
        match what:
            case "acked":
                self._tell(what, number, lambda: machine.on_acked(now, number))
            case "rejected":
                away = self.choices.one_in(3)
                event = "turned away" if away else what
                ending = endings.TURNED_AWAY if away else endings.REJECTED
                call = lambda: machine.on_rejected(now, number, "busy", ending)  # noqa: E731
                self._tell(event, number, call)
            case "partial":
                partial = dispatcher_pb2.JobPartial(attempt=ref)
                self._tell(what, number, lambda: machine.on_partial(now, partial))
            case "result":
                result = dispatcher_pb2.JobResult(attempt=ref)
                self._tell(what, number, lambda: machine.on_result(now, result, node.node_id))
            case _:
                failed = dispatcher_pb2.JobFailed(
                    attempt=ref, cause="BROKEN", worth_retry=what == "failed"
                )
                self._tell(what, number, lambda: machine.on_failed(now, failed, node.node_id))

    def _cancel_on_node(self, attempt: fx.Attempt) -> None:
        node = self.nodes[attempt.node_id]
        if node.connected and node.epoch == attempt.placement.node_epoch:
            node.knows.pop(attempt.number, None)

    def _garbage(self) -> None:
        """A report about an attempt that this node never had, or no longer has."""
        node = self.nodes[NODES[self.choices.pick(len(NODES))]]
        number = (99, 1, 2)[self.choices.pick(3)]
        theirs = self.machine.attempts.get(number)
        what = ("result", "failed", "acked", "rejected")[self.choices.pick(4)]
        # The shell accepts acknowledgements and rejections only from the attempt's own node.
        if what in ("result", "failed") or theirs is None:
            self._say(node, what, number)

    def _cut_a_connection(self) -> None:
        """Cuts the connection of a node, mostly of one that has the job."""
        alive = [each for each in self.machine.attempts.values() if each.is_alive]
        name = alive[0].node_id if alive else NODES[self.choices.pick(len(NODES))]
        node = self.nodes[name]
        if not node.connected:
            return
        node.connected = False
        self.log.append(f"{self.now:8.1f} {name} loses its connection")
        for attempt in alive:
            if attempt.node_id == name:
                self._after(1.0, lambda number=attempt.number: self._lost(number))  # type: ignore[misc]
        if not self.choices.one_in(4):
            self._after(self.choices.delay(), lambda: self._reconnect(node), any_home=True)

    def _lost(self, number: int) -> None:
        self._tell("node lost", number, lambda: self.machine.on_node_lost(self.now, number))

    def _reconnect(self, node: Node) -> None:
        node.connected = True
        node.epoch += 1
        self.log.append(f"{self.now:8.1f} {node.node_id} is connected again")
        if self.choices.one_in(4):
            node.knows.clear()  # its process has started anew
        for number, what in list(node.knows.items()):
            if what != "running":
                self._report(node, what, number, 1.0)

    def _locate(self, attempt: fx.Attempt) -> None:
        if self.machine.phase is not Phase.LOST or not attempt.is_alive:
            return
        node = self.nodes[attempt.node_id]
        if node.connected and node.epoch != attempt.placement.node_epoch:
            back = pool_pb2.Placement(node_id=node.node_id, node_epoch=node.epoch)
            call = lambda: self.machine.on_node_back(self.now, attempt.number, back)  # noqa: E731
            self._tell("node back", attempt.number, call)
        self._after(10.0, lambda: self._locate(attempt))


def _short(effect: fx.Effect) -> str:
    attempt = getattr(effect, "attempt", None)
    if attempt is None:
        return str(effect)
    rest = [
        f"{name}={getattr(effect, name)}"
        for name in ("cause", "outcome", "final")
        if getattr(effect, name, 0)
    ]
    return " ".join([type(effect).__name__, str(attempt.number), attempt.node_id, *rest])
