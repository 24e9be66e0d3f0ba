"""What a job's machine asks its shell to do. Plain values, carried out in order.

Nobody modifies them. They are not frozen: that would double the cost of creating one, and every job
creates at least eight.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from types import MappingProxyType
from typing import NamedTuple

from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, pool_pb2

# Identifies a timer of a job: its purpose, and the attempt that it belongs to (0: the job).
TimerKey = tuple[str, int]

# The paths by which a job gets to the node that has the beginning of its turn.
BY_BINDING = (
    pool_pb2.PLACEMENT_PATH_TIMEOUT_BINDING,
    pool_pb2.PLACEMENT_PATH_MAX_DURATION_BINDING,
)


class FailureCause(NamedTuple):
    """Why a question, an attempt or a job failed, in the contract's terms."""

    reason: common_pb2.ErrorReason.ValueType
    message: str
    retry_after_ms: int = 0
    metadata: Mapping[str, str] = MappingProxyType({})


class AttemptState(Enum):
    """How far an attempt is, and therefore what it holds in the pool."""

    # A reservation, which Release ends.
    RESERVED = auto()
    # A running lease, or one whose commit is under way. Complete ends it.
    ACKED = auto()
    # Nothing: it finished under another home, and its result is being looked for.
    KEPT = auto()
    # Nothing: its result was delivered.
    DONE = auto()
    # Nothing: it ended without a result.
    ENDED = auto()


@dataclass(slots=True, eq=False)
class Attempt:
    """One try of the job on one node."""

    number: int
    placement: pool_pb2.Placement
    state: AttemptState = AttemptState.RESERVED
    # An earlier home made it, and may have sent it.
    is_taken_up: bool = False
    # It has no slot: the node is asked only for the result, and must not start.
    is_result_only: bool = False
    # Its connection was lost, so the node may have it and cannot be told to stop.
    is_cut_off: bool = False
    # The node that it is for, wherever that is connected.
    node_id: str = field(init=False)

    def __post_init__(self) -> None:
        self.node_id = self.placement.node_id

    @property
    def is_alive(self) -> bool:
        """Whether its result is still wanted."""
        return self.state is not AttemptState.ENDED and self.state is not AttemptState.DONE


@dataclass(slots=True)
class Allocate:
    """Ask the pool for a node. It answers once, with on_allocated or on_refused.

    Always the last effect of its event, so that the answer may come immediately.
    """

    number: int
    exclude: tuple[str, ...]
    wait_for_bound_node: bool


@dataclass(slots=True)
class Send:
    """Write the assignment to the node's stream. If that fails, call on_send_failed."""

    attempt: Attempt


@dataclass(slots=True)
class CancelOnNode:
    """Tell the node to stop. It need not answer."""

    attempt: Attempt
    why: str


@dataclass(slots=True)
class Commit:
    """Turn the reservation into a running lease. The answer is on_committed."""

    attempt: Attempt


@dataclass(slots=True)
class Release:
    """Give the reservation back. Repeat until the pool answers or the lease has expired.

    `final`: how the job ended, if it ends with this attempt. `detail`: the node's own description,
    for operators only.
    """

    attempt: Attempt
    cause: pool_pb2.ReleaseCause.ValueType
    final: common_pb2.JobState.ValueType = common_pb2.JOB_STATE_UNSPECIFIED
    detail: str = ""


@dataclass(slots=True)
class Complete:
    """Free the running slot. Repeat until the pool answers or the lease has expired.

    `final` and `detail`: as in Release; a success is always final. `job_at_fault`: the failure does
    not count against the node. `result`: of a success.
    """

    attempt: Attempt
    outcome: pool_pb2.AttemptOutcome.ValueType
    detail: str = ""
    final: common_pb2.JobState.ValueType = common_pb2.JOB_STATE_UNSPECIFIED
    job_at_fault: bool = False
    result: dispatcher_pb2.JobResult | None = None


@dataclass(slots=True)
class Confirm:
    """Tell the node that it may forget its report about this attempt."""

    node_id: str
    number: int


@dataclass(slots=True)
class Locate:
    """Look for the node until the job is no longer LOST. Each new connection is on_node_back."""

    attempt: Attempt


@dataclass(slots=True)
class Wait:
    """Queue the job for room; its turn is on_room. If the queue is full, call on_no_place.

    A job that got its turn and has to wait again keeps its place. It leaves the queue when its
    phase is no longer WAITING or SELECTING: a turn given to a job that does not wait is lost for
    those that do.
    """

    # Not for room, but for any node besides these.
    besides: tuple[str, ...] = ()


@dataclass(slots=True)
class Wake:
    """Call on_wake at this time, instead of at the time given before."""

    at_ms: float


@dataclass(slots=True)
class Accepted:
    """Tell the gateway that a node runs the job."""

    attempt: Attempt


@dataclass(slots=True)
class Retrying:
    """Tell the gateway that an attempt ended without a result and another one follows."""

    number: int
    why: FailureCause


@dataclass(slots=True)
class PassPartial:
    """Send a partial result to the gateway."""

    partial: dispatcher_pb2.JobPartial


@dataclass(slots=True)
class Deliver:
    """Send the result to the gateway. When it has been taken, confirm it to the node."""

    attempt: Attempt
    result: dispatcher_pb2.JobResult


@dataclass(slots=True)
class FetchKept:
    """Look for a kept result of a job that was done earlier. The answer is on_kept.

    is_last: the job fails if there is none, so look until Redis answers. Otherwise a store that
    cannot be read counts as one without the result: the node may have it.
    """

    attempt: Attempt
    is_last: bool


@dataclass(slots=True)
class Fail:
    """Tell the gateway that the job ended without a result."""

    why: FailureCause


Effect = (
    Allocate
    | Send
    | CancelOnNode
    | Commit
    | Release
    | Complete
    | Confirm
    | Locate
    | Wait
    | Wake
    | Accepted
    | Retrying
    | PassPartial
    | Deliver
    | FetchKept
    | Fail
)
