"""What each reason of a failure means, in one plain sentence."""

from typing import Final

from lingua_scheduler.services.runtime.errors import reason_name
from lingua_scheduler.v1 import common_pb2

_UNKNOWN = "The reason is not known to this version of the console."

EXPLANATIONS: Final = {
    common_pb2.ERROR_REASON_UNSPECIFIED: "No reason was recorded.",
    common_pb2.ERROR_REASON_INVALID_MESSAGE: (
        "The request had a field that was missing, malformed or too large."
    ),
    common_pb2.ERROR_REASON_NO_CAPABLE_NODE: (
        "No known node serves this direction with what the job required: add nodes for it."
    ),
    common_pb2.ERROR_REASON_ALL_CANDIDATES_FULL_OR_FAILED: (
        "Nodes serve this direction, but none of them was ready and had a free slot in time."
    ),
    common_pb2.ERROR_REASON_PREFERRED_NODE_NOT_CAPABLE: (
        "The app insisted on one node, and that node cannot do this job."
    ),
    common_pb2.ERROR_REASON_BOUND_NODE_FULL: (
        "The node that has the beginning of the sentence was full, silent or disconnected."
    ),
    common_pb2.ERROR_REASON_SCHEDULER_DEPENDENCY_DOWN: (
        "Redis or another service could not be reached, was too slow, or refused to write."
    ),
    common_pb2.ERROR_REASON_SESSION_NOT_FOUND: (
        "The session does not exist any more: it was closed, or it was not resumed in time."
    ),
    common_pb2.ERROR_REASON_SESSION_TAKEN_OVER: (
        "Another gateway has taken over the session, and this job belonged to the old one."
    ),
    common_pb2.ERROR_REASON_NODE_ID_CONFLICT: (
        "Two nodes use the same id, and the one that came first keeps it."
    ),
    common_pb2.ERROR_REASON_NODE_NOT_FOUND: "The node is not known: it was removed or forgotten.",
    common_pb2.ERROR_REASON_NODE_EPOCH_OLD: (
        "The node has connected again, and the call was about its earlier connection."
    ),
    common_pb2.ERROR_REASON_JOB_NOT_FOUND: (
        "The job is not known: its record has expired, or there never was one."
    ),
    common_pb2.ERROR_REASON_JOB_TIMEOUT: (
        "There was no result in time: the nodes took too long, or did not answer."
    ),
    common_pb2.ERROR_REASON_JOB_CANCELLED: (
        "The job was cancelled by an operator, or because its result was no longer wanted."
    ),
    common_pb2.ERROR_REASON_JOB_FAILED: (
        "Every attempt failed on its node: the attempts show how, node by node."
    ),
    common_pb2.ERROR_REASON_QUOTA_EXCEEDED: (
        "The tenant has reached its limit of sessions, jobs or speech per minute."
    ),
    common_pb2.ERROR_REASON_UNAUTHENTICATED: (
        "The caller had no token or certificate, or one that is not valid."
    ),
    common_pb2.ERROR_REASON_PERMISSION_DENIED: "The caller is known, but may not do this.",
    common_pb2.ERROR_REASON_POOL_FULL: ("The pools of this direction cannot take another node."),
    common_pb2.ERROR_REASON_DRAINING: (
        "The instance was shutting down, and no other one took over in time."
    ),
    common_pb2.ERROR_REASON_BACKPRESSURE: (
        "A peer read too slowly, and the queue of messages for it was full."
    ),
    common_pb2.ERROR_REASON_INTERNAL: (
        "A bug in the scheduler: the log of the instance has the details under the error id."
    ),
    common_pb2.ERROR_REASON_DEADLINE_EXCEEDED: (
        "The time that the caller had allowed was over before there was a result."
    ),
    common_pb2.ERROR_REASON_BAD_AUDIO: (
        "The audio did not match its format, or a part of it was missing."
    ),
    common_pb2.ERROR_REASON_HELD_AUDIO_NEEDED: (
        "A node held the beginning of the sentence and could not go on; the gateway sends the job "
        "again with that audio."
    ),
    common_pb2.ERROR_REASON_ROOM_NOT_FOUND: (
        "There is no such room, or nobody was in it for too long."
    ),
    common_pb2.ERROR_REASON_ROOM_CLOSED: "The room was closed.",
    common_pb2.ERROR_REASON_ROOM_FULL: (
        "The room had as many members, speakers or languages as it may have."
    ),
}
_BY_NAME = {reason_name(reason): text for reason, text in EXPLANATIONS.items()}


def explanation(reason: str) -> str:
    """Explains a reason by its name, such as NO_CAPABLE_NODE."""
    return _BY_NAME.get(reason, _UNKNOWN)
