"""The ways in which an attempt ends without a result, and the consequences of each."""

from dataclasses import dataclass

from lingua_scheduler.v1 import common_pb2, pool_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How an attempt ended."""

    # What the gateway is told.
    reason: common_pb2.ErrorReason.ValueType = common_pb2.ERROR_REASON_JOB_FAILED
    # What the pool is told about an attempt that is only reserved, and about one that runs.
    cause: pool_pb2.ReleaseCause.ValueType = pool_pb2.RELEASE_CAUSE_CANCELLED
    outcome: pool_pb2.AttemptOutcome.ValueType = pool_pb2.ATTEMPT_OUTCOME_FAILED
    # Whether the node has to be told to stop.
    cancels: bool = False
    # Whether it counts as one of the job's tries.
    counts: bool = True
    # Whether the node says that no other node would do better. The job ends if a second one agrees.
    is_hopeless: bool = False
    # Whether the node blames the job, so that it does not count against the node.
    job_at_fault: bool = False
    # Whether the next attempt already exists, because another home has made it.
    is_replaced: bool = False

    @property
    def lets_another_try(self) -> bool:
        """Whether a new attempt on another node may follow."""
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
# Says nothing about the job.
NOT_SENT = Ending(cause=pool_pb2.RELEASE_CAUSE_SEND_FAILED, counts=False)
# The job itself may be what crashes nodes.
CUT_OFF = Ending(cause=pool_pb2.RELEASE_CAUSE_CONNECTION_LOST)
REJECTED = Ending(cause=pool_pb2.RELEASE_CAUSE_REJECTED)
BAD_JOB = Ending(cause=pool_pb2.RELEASE_CAUSE_BAD_JOB, job_at_fault=True)
# The node has no free slot or is draining. Neither says anything about the job.
TURNED_AWAY = Ending(cause=pool_pb2.RELEASE_CAUSE_REJECTED, counts=False)
FAILED = Ending()
HOPELESS = Ending(is_hopeless=True, job_at_fault=True)
# The node lost the audio that it held for the job, so it can do only a part of it.
NOT_JOINED = Ending(outcome=pool_pb2.ATTEMPT_OUTCOME_CANCELLED)
# The reservation expired before the acknowledgement reached the pool. Not the node's fault.
NO_ROOM = Ending(outcome=pool_pb2.ATTEMPT_OUTCOME_CANCELLED, cancels=True)
# Another home has a later attempt; the next question to the pool returns it.
SUPERSEDED = Ending(
    outcome=pool_pb2.ATTEMPT_OUTCOME_CANCELLED, cancels=True, counts=False, is_replaced=True
)
# After these two there is no retry: the job has another attempt, or is over.
HEDGE_LOST = Ending(
    cause=pool_pb2.RELEASE_CAUSE_HEDGE_LOST,
    outcome=pool_pb2.ATTEMPT_OUTCOME_CANCELLED,
    cancels=True,
)
NOT_WANTED = Ending(outcome=pool_pb2.ATTEMPT_OUTCOME_CANCELLED, cancels=True)
