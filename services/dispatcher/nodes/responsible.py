"""Who answers for an attempt: the job here, or the home on another instance, behind a relay."""

from typing import Protocol

from lingua_scheduler.v1 import common_pb2, dispatcher_pb2

# What a node may say of an attempt.
Report = (
    dispatcher_pb2.JobAck
    | dispatcher_pb2.JobReject
    | dispatcher_pb2.JobPartial
    | dispatcher_pb2.JobResult
    | dispatcher_pb2.JobFailed
)


class Responsible(Protocol):
    """Takes what a node says of the attempts that it was given."""

    def on_report(self, node_id: str, report: Report) -> None:
        """The node has said something of an attempt."""

    def on_not_sent(self, node_id: str, attempt: common_pb2.AttemptRef, why: str) -> None:
        """The assignment never got to the node."""

    def on_lost(self, node_id: str, attempt: common_pb2.AttemptRef) -> None:
        """The connection of a node that may have the attempt is gone."""
