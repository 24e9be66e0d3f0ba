"""The ways in which an attempt ends without a result, and what follows from each."""

from dataclasses import dataclass

from lingua_scheduler.v1 import common_pb2, pool_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """One way."""

    # What the gateway hears.
    reason: common_pb2.ErrorReason.ValueType = common_pb2.ERROR_REASON_JOB_FAILED
    # What the pool hears of an attempt that is only reserved, and of one that runs.
    cause: pool_pb2.ReleaseCause.ValueType = pool_pb2.RELEASE_CAUSE_CANCELLED
    outcome: pool_pb2.AttemptOutcome.ValueType = pool_pb2.ATTEMPT_OUTCOME_FAILED
    # Whether the node has to be told, because it does not know.
    cancels: bool = False
    # Whether it is one of the job's tries.
    counts: bool = True
    # Whether the node says that no other node would do better. The job ends if a second one agrees.
    is_hopeless: bool = False
    # Whether the node blames the job, so that it does not count against the node.
    job_at_fault: bool = False
    # Whether the next attempt is there already: another home has made it.
    is_replaced: bool = False

    @property
    def lets_another_try(self) -> bool:
        """Whether a new attempt on another node follows."""
        return not self.is_replaced


NOT_ACKNOWLEDGED = Ending(
    reason=common_pb2.ERROR_REASON_JOB_TIMEOUT,
    cause=pool_pb2.RELEASE_CAUSE_ACK_TIMEOUT,
    cancels=True,
)
TOOK_TOO_LONG = Ending(
    reason=common_pb2.ERROR_REASON_JOB_TIMEOUT,
    outcome=pool_pb2.ATTEMPT_OUTCOME_TIMED_OUT,
    cancels=True,
)
NOT_BACK = Ending(cancels=True)
# It says nothing of the job.
NOT_SENT = Ending(cause=pool_pb2.RELEASE_CAUSE_SEND_FAILED, counts=False)
# The job itself may be what brings nodes down.
CUT_OFF = Ending(cause=pool_pb2.RELEASE_CAUSE_CONNECTION_LOST)
REJECTED = Ending(cause=pool_pb2.RELEASE_CAUSE_REJECTED)
BAD_JOB = Ending(cause=pool_pb2.RELEASE_CAUSE_BAD_JOB, job_at_fault=True)
# The node has no room, or is going away. Neither says anything of the job.
TURNED_AWAY = Ending(cause=pool_pb2.RELEASE_CAUSE_REJECTED, counts=False)
FAILED = Ending()
HOPELESS = Ending(is_hopeless=True, job_at_fault=True)
# The node has forgotten what it held for the job. It runs the job, but cannot do all of it.
NOT_JOINED = Ending(outcome=pool_pb2.ATTEMPT_OUTCOME_CANCELLED)
# Its reservation was over before the pool heard of the acknowledgement. No fault of the node.
NO_ROOM = Ending(outcome=pool_pb2.ATTEMPT_OUTCOME_CANCELLED, cancels=True)
# Another home has an attempt that is ahead; the next question to the pool finds it.
SUPERSEDED = Ending(
    outcome=pool_pb2.ATTEMPT_OUTCOME_CANCELLED, cancels=True, counts=False, is_replaced=True
)
# These two are not for retries: the job has another attempt, or is over.
HEDGE_LOST = Ending(
    cause=pool_pb2.RELEASE_CAUSE_HEDGE_LOST,
    outcome=pool_pb2.ATTEMPT_OUTCOME_CANCELLED,
    cancels=True,
)
NOT_WANTED = Ending(outcome=pool_pb2.ATTEMPT_OUTCOME_CANCELLED, cancels=True)
