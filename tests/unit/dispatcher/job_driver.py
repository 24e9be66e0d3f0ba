"""A job machine and the events to drive it with, for tests."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from lingua_scheduler.services.dispatcher.job import effects as fx
from lingua_scheduler.services.dispatcher.job.machine import JobMachine
from lingua_scheduler.services.dispatcher.job.model import JobRules, Phase
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, pool_pb2

FAILED = common_pb2.JOB_STATE_FAILED
CANCELLED = common_pb2.JOB_STATE_CANCELLED
ALL_FULL = common_pb2.ERROR_REASON_ALL_CANDIDATES_FULL_OR_FAILED
BOUND_FULL = common_pb2.ERROR_REASON_BOUND_NODE_FULL
NO_NODE = common_pb2.ERROR_REASON_NO_CAPABLE_NODE
OVER_QUOTA = common_pb2.ERROR_REASON_QUOTA_EXCEEDED
# With ALL_FULL: the pool knows no nodes besides those that the job has excluded.
ALL_TRIED = {"drawn": "1", "excluded": "1"}
COMMIT = pool_pb2.CommitResponse


def ref(number: int) -> common_pb2.AttemptRef:
    return common_pb2.AttemptRef(job_id="job", attempt=number)


def placement(number: int, epoch: int = 1) -> pool_pb2.Placement:
    """Attempt n is on node n."""
    return pool_pb2.Placement(node_id=f"node-{number}", node_epoch=epoch)


def result(number: int) -> dispatcher_pb2.JobResult:
    return dispatcher_pb2.JobResult(attempt=ref(number))


@dataclass
class Job:
    """A machine, and the effects of the last event. Every event returns the job."""

    hedge_after_ms: float = 0.0
    affinity_wait_ms: float = 0.0
    affinity_away_ms: float = 0.0
    max_retry: int = 2
    deadline_ms: float | None = None
    is_strict: bool = False
    now: float = 0.0
    effects: list[fx.Effect] = field(default_factory=list)

    def __post_init__(self) -> None:
        rules = JobRules(
            ack_timeout_ms=100,
            job_timeout_ms=1000,
            queue_wait_ms=200,
            other_nodes_wait_ms=300,
            affinity_wait_ms=self.affinity_wait_ms,
            affinity_away_ms=self.affinity_away_ms,
            grace_ms=300,
            hedge_after_ms=self.hedge_after_ms,
            max_retry=self.max_retry,
        )
        self.machine = JobMachine(
            rules=rules, deadline_ms=self.deadline_ms, is_strict=self.is_strict
        )

    @property
    def phase(self) -> Phase:
        return self.machine.phase

    def start(self) -> "Job":
        return self.then(self.machine.start(self.now))

    def given(self, number: int) -> "Job":
        return self.told(number, common_pb2.JOB_STATE_RESERVED, lease=5000, existing=False)

    def told(
        self,
        number: int,
        state: common_pb2.JobState.ValueType,
        *,
        lease: int,
        existing: bool = True,
    ) -> "Job":
        answer = pool_pb2.AllocateResponse(
            attempt=ref(number),
            placement=placement(number),
            state=state,
            existing=existing,
            lease_ends_ms=lease,
        )
        return self.then(self.machine.on_allocated(self.now, answer))

    def refused(
        self,
        reason: common_pb2.ErrorReason.ValueType,
        retry_ms: int = 0,
        facts: Mapping[str, str] = MappingProxyType({}),
    ) -> "Job":
        cause = fx.FailureCause(reason, "refused", retry_ms, facts)
        return self.then(self.machine.on_refused(self.now, cause))

    def room(self) -> "Job":
        return self.then(self.machine.on_room(self.now))

    def no_place(self) -> "Job":
        return self.then(self.machine.on_no_place(self.now))

    def send_failed(self, number: int) -> "Job":
        return self.then(self.machine.on_send_failed(self.now, number, "no stream"))

    def node_lost(self, number: int) -> "Job":
        return self.then(self.machine.on_node_lost(self.now, number))

    def node_back(self, number: int) -> "Job":
        return self.then(self.machine.on_node_back(self.now, number, placement(number, epoch=2)))

    def acked(self, number: int) -> "Job":
        return self.then(self.machine.on_acked(self.now, number))

    def committed(self, number: int, outcome: COMMIT.Outcome.ValueType) -> "Job":
        return self.then(self.machine.on_committed(self.now, number, outcome))

    def rejected(self, number: int) -> "Job":
        return self.then(self.machine.on_rejected(self.now, number, "FULL"))

    def partial(self, number: int) -> "Job":
        partial = dispatcher_pb2.JobPartial(attempt=ref(number))
        return self.then(self.machine.on_partial(self.now, partial))

    def result(self, number: int, node: int | None = None) -> "Job":
        node_id = f"node-{node or number}"
        return self.then(self.machine.on_result(self.now, result(number), node_id))

    def failed(self, number: int, *, worth_retry: bool = True) -> "Job":
        failed = dispatcher_pb2.JobFailed(
            attempt=ref(number), cause="BROKEN", worth_retry=worth_retry
        )
        return self.then(self.machine.on_failed(self.now, failed, f"node-{number}"))

    def kept(self, number: int | None) -> "Job":
        kept = None if number is None else result(number)
        return self.then(self.machine.on_kept(self.now, kept))

    def timer(self, kind: str, number: int = 0) -> "Job":
        return self.then(self.machine.on_timer(self.now, (kind, number)))

    def woken(self) -> "Job":
        return self.then(self.machine.on_wake(self.now))

    def cancel(self) -> "Job":
        return self.then(self.machine.on_cancel(self.now, "no longer wanted"))

    def at(self, now: float) -> "Job":
        self.now = now
        return self

    def then(self, effects: list[fx.Effect]) -> "Job":
        self.effects = effects
        return self

    def kinds(self) -> list[type[fx.Effect]]:
        """The kinds of effects, except for Wake."""
        return [type(effect) for effect in self.effects if not isinstance(effect, fx.Wake)]

    def only(self, kind: type[fx.Effect]) -> fx.Effect:
        (effect,) = (effect for effect in self.effects if type(effect) is kind)
        return effect

    def ending(self) -> tuple[str, int, int, int]:
        """The only lease operation: its kind, attempt, cause or outcome, and the final state."""
        (found,) = (each for each in self.effects if isinstance(each, fx.Release | fx.Complete))
        detail = found.cause if isinstance(found, fx.Release) else found.outcome
        return type(found).__name__, found.attempt.number, detail, found.final

    def asked(self) -> fx.Allocate:
        effect = self.only(fx.Allocate)
        assert isinstance(effect, fx.Allocate)
        return effect

    def failure(self) -> common_pb2.ErrorReason.ValueType:
        effect = self.only(fx.Fail)
        assert isinstance(effect, fx.Fail)
        return effect.why.reason


def placed(**rules: float) -> Job:
    return Job(**rules).start().given(1)  # type: ignore[arg-type]


def running(**rules: float) -> Job:
    return placed(**rules).acked(1)


def hedged() -> Job:
    return placed(hedge_after_ms=50).at(50).timer("hedge").given(2)
