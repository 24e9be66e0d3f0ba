"""What a job's machine asks the world to do. Plain values: the shell carries them out in order.

Nobody changes them. They are not frozen: that would make each twice as dear, and a job has eight.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from types import MappingProxyType
from typing import NamedTuple

from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, pool_pb2

# Names a timer of a job: what for, and of which attempt (0: of the job).
TimerKey = tuple[str, int]


# The paths by which a job comes to the node that has the beginning of its turn.
BY_BINDING = (
    pool_pb2.PLACEMENT_PATH_TIMEOUT_BINDING,
    pool_pb2.PLACEMENT_PATH_MAX_DURATION_BINDING,
)


class Problem(NamedTuple):
    """Why something did not work, in the contract's terms."""

    reason: common_pb2.ErrorReason.ValueType
    message: str
    retry_after_ms: int = 0
    metadata: Mapping[str, str] = MappingProxyType({})


class Stage(Enum):
    """How far an attempt is, and so what it holds in the pool."""

    # A reservation: Release ends it.
    RESERVED = auto()
    # A running lease, or its commit is under way: Complete ends it.
    ACKED = auto()
    # Nothing: it was done under another home, and its result is looked for.
    KEPT = auto()
    # Nothing: its result is delivered.
    DONE = auto()
    # Nothing: it is over without a result.
    ENDED = auto()


@dataclass(slots=True, eq=False)
class Attempt:
    """One try on one node."""

    number: int
    placement: pool_pb2.Placement
    stage: Stage = Stage.RESERVED
    # An earlier home made it, and may have sent it.
    is_taken_up: bool = False
    # It has no slot: the node is only asked for its result, and must not begin.
    is_result_only: bool = False
    # Its connection was lost, so the node may have it and cannot be told to stop.
    is_cut_off: bool = False
    # The node that it is for, wherever that is connected.
    node_id: str = field(init=False)

    def __post_init__(self) -> None:
        self.node_id = self.placement.node_id

    @property
    def is_alive(self) -> bool:
        """Whether a result of it is still wanted."""
        return self.stage is not Stage.ENDED and self.stage is not Stage.DONE


@dataclass(slots=True)
class Allocate:
    """Ask the pool for a node; the one answer is on_allocated or on_refused.

    Always the last effect of its event, so that it may be answered at once.
    """

    number: int
    exclude: tuple[str, ...]
    wait_for_bound_node: bool


@dataclass(slots=True)
class Send:
    """Write the assignment to the node's stream; what goes wrong is on_send_failed."""

    attempt: Attempt


@dataclass(slots=True)
class CancelOnNode:
    """Tell the node to stop; it need not answer."""

    attempt: Attempt
    why: str


@dataclass(slots=True)
class Commit:
    """Make the reservation a running lease; the answer is on_committed."""

    attempt: Attempt


@dataclass(slots=True)
class Release:
    """Give the reservation back. Repeated until it is answered or the lease is over.

    `final`: how the job ended, where it ends with this. `detail`: the node's own words, for
    operators; clients are not told.
    """

    attempt: Attempt
    cause: pool_pb2.ReleaseCause.ValueType
    final: common_pb2.JobState.ValueType = common_pb2.JOB_STATE_UNSPECIFIED
    detail: str = ""


@dataclass(slots=True)
class Complete:
    """Free the running slot. Repeated until it is answered or the lease is over.

    `final` and `detail`: as of Release; a success is always final. `job_at_fault`: it does not
    count against the node.
    """

    attempt: Attempt
    outcome: pool_pb2.AttemptOutcome.ValueType
    detail: str = ""
    final: common_pb2.JobState.ValueType = common_pb2.JOB_STATE_UNSPECIFIED
    job_at_fault: bool = False


@dataclass(slots=True)
class Confirm:
    """Tell the node that it may forget what it reported of this attempt."""

    node_id: str
    number: int


@dataclass(slots=True)
class Locate:
    """Look for the node until the job is no longer LOST; each new connection is on_node_back."""

    attempt: Attempt


@dataclass(slots=True)
class Wait:
    """Join the queue of those that wait for room; the call is on_room.

    Who is called and has to wait again keeps the place. Leave the queue when the phase is no longer
    WAITING or SELECTING: a call to a job that does not wait would be lost for those that do.
    """


@dataclass(slots=True)
class Wake:
    """Call on_wake at this time, and not at the one that was told before."""

    at_ms: float


@dataclass(slots=True)
class Accepted:
    """Tell the gateway: a node runs the job."""

    attempt: Attempt


@dataclass(slots=True)
class Retrying:
    """Tell the gateway: an attempt ended without a result, and another follows."""

    number: int
    why: Problem


@dataclass(slots=True)
class PassPartial:
    """Give the gateway a partial result."""

    partial: dispatcher_pb2.JobPartial


@dataclass(slots=True)
class Deliver:
    """Give the gateway the result. The node's copy is confirmed when it has been taken."""

    attempt: Attempt
    result: dispatcher_pb2.JobResult


@dataclass(slots=True)
class FetchKept:
    """The job was done before: look for a kept result; the answer is on_kept."""

    attempt: Attempt


@dataclass(slots=True)
class Fail:
    """Tell the gateway: the job is over without a result."""

    why: Problem


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
