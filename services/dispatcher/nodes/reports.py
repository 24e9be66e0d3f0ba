"""Reports of nodes that are over the contract's limits: each fails the attempt that it is about."""

from lingua_scheduler.services.dispatcher.job.model import MAX_DETAIL
from lingua_scheduler.services.dispatcher.nodes.responsible import Report
from lingua_scheduler.services.runtime.contract import limits
from lingua_scheduler.v1 import dispatcher_pb2

# The cause of an attempt whose node broke the contract.
INVALID = "INVALID_MESSAGE"


def failure_of(
    kind: str, report: Report | dispatcher_pb2.AudioHeld
) -> dispatcher_pb2.JobFailed | None:
    """How an attempt fails by a report that is over a limit; None if the report is right.

    Raises:
        InvalidMessageError: not even its attempt is named.
    """
    found = limits.problems(report, f"{kind}.")
    if not found:
        return None
    if limits.problems(report.attempt):
        limits.refuse(found)
    field, problem = found[0]
    return dispatcher_pb2.JobFailed(
        attempt=report.attempt,
        cause=INVALID,
        detail=f"{field}: {problem}"[:MAX_DETAIL],
        worth_retry=True,
    )


def too_large(report: Report, most: int) -> dispatcher_pb2.JobFailed:
    """How an attempt fails whose report no message between dispatchers can hold."""
    return dispatcher_pb2.JobFailed(
        attempt=report.attempt,
        cause=INVALID,
        detail=f"the report has {report.ByteSize()} bytes; at most {most} can be passed on",
        worth_retry=True,
    )
