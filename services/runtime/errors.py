"""Every exception that the scheduler raises on purpose, and how it is transmitted.

A service raises a `LinguaError`, and the interceptor turns it into a status with details. On a
stream the same content is an `Error` message (`to_proto`). Callers read it with `from_rpc_error`,
and make the exception again with `from_proto`.
"""

import secrets
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import grpc
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from lingua_scheduler.statuses import DOMAIN
from lingua_scheduler.statuses import from_rpc_error as from_rpc_error
from lingua_scheduler.statuses import reason_name as reason_name
from lingua_scheduler.v1 import common_pb2

# A peer may drop responses whose metadata is over 8 KiB. It contains the message twice, once
# percent-encoded (up to three times as long), and the details in base64 (a third longer).
MAX_MESSAGE_BYTES = 1024
MAX_DETAILS_BYTES = 3 * 1024


class SettingsError(Exception):
    """The process cannot start with these settings; the message has one line per problem."""


class LinguaError(Exception):
    """An error with a reason that clients can act on.

    Args:
        message: one sentence for people; truncated to `MAX_MESSAGE_BYTES`.
        retry_after_ms: when a retry may succeed; 0 if it would not.
        metadata: facts for tools.
        fields: the path of each bad field, and what is wrong with it.
    """

    # Set by the class, except for errors of other services whose reason has no class here.
    reason: common_pb2.ErrorReason.ValueType = common_pb2.ERROR_REASON_INTERNAL
    code: ClassVar[grpc.StatusCode] = grpc.StatusCode.INTERNAL

    def __init__(
        self,
        message: str,
        *,
        retry_after_ms: int = 0,
        metadata: Mapping[str, str] | None = None,
        fields: Sequence[tuple[str, str]] = (),
    ) -> None:
        self.message = _cut(message)
        super().__init__(self.message)
        self.retry_after_ms = retry_after_ms
        self.metadata = {_cut(key): _cut(value) for key, value in (metadata or {}).items()}
        self.fields = tuple((_cut(field), _cut(problem)) for field, problem in fields)


class InvalidMessageError(LinguaError):
    """A field is missing, malformed or too large."""

    reason = common_pb2.ERROR_REASON_INVALID_MESSAGE
    code = grpc.StatusCode.INVALID_ARGUMENT


class NoCapableNodeError(LinguaError):
    """No known node serves this direction with these requirements.

    FAILED_PRECONDITION rather than NOT_FOUND, because nothing that the request names is missing.
    """

    reason = common_pb2.ERROR_REASON_NO_CAPABLE_NODE
    code = grpc.StatusCode.FAILED_PRECONDITION


class AllCandidatesFullOrFailedError(LinguaError):
    """Capable nodes exist, but none of those drawn is ready and has a free slot."""

    reason = common_pb2.ERROR_REASON_ALL_CANDIDATES_FULL_OR_FAILED
    code = grpc.StatusCode.RESOURCE_EXHAUSTED


class PreferredNodeNotCapableError(LinguaError):
    """The preferred node cannot do this job."""

    reason = common_pb2.ERROR_REASON_PREFERRED_NODE_NOT_CAPABLE
    code = grpc.StatusCode.FAILED_PRECONDITION


class BoundNodeFullError(LinguaError):
    """The node that holds the turn's audio is full, and the caller asked not to wait."""

    reason = common_pb2.ERROR_REASON_BOUND_NODE_FULL
    code = grpc.StatusCode.RESOURCE_EXHAUSTED


class HeldAudioNeededError(LinguaError):
    """The job needs audio that a node holds, but cannot be sent to that node."""

    reason = common_pb2.ERROR_REASON_HELD_AUDIO_NEEDED
    code = grpc.StatusCode.FAILED_PRECONDITION


class DependencyDownError(LinguaError):
    """Redis is unreachable or too slow, or refuses writes; nothing was promised.

    Args:
        message: what does not work, for callers.
        why: the reason, for logs only, because it may contain addresses.
    """

    reason = common_pb2.ERROR_REASON_SCHEDULER_DEPENDENCY_DOWN
    code = grpc.StatusCode.UNAVAILABLE

    def __init__(self, message: str, *, why: str = "", **details: Any) -> None:
        super().__init__(message, **details)
        self.why = why

    def __str__(self) -> str:
        return f"{self.message}: {self.why}" if self.why else self.message


class SessionNotFoundError(LinguaError):
    """No session has this id and token, or its record has expired."""

    reason = common_pb2.ERROR_REASON_SESSION_NOT_FOUND
    code = grpc.StatusCode.NOT_FOUND


class SessionTakenOverError(LinguaError):
    """The session has a newer epoch than the sender."""

    reason = common_pb2.ERROR_REASON_SESSION_TAKEN_OVER
    code = grpc.StatusCode.ABORTED


class NodeIdConflictError(LinguaError):
    """A live node already has this id."""

    reason = common_pb2.ERROR_REASON_NODE_ID_CONFLICT
    code = grpc.StatusCode.ALREADY_EXISTS


class NodeNotFoundError(LinguaError):
    """No node has this id."""

    reason = common_pb2.ERROR_REASON_NODE_NOT_FOUND
    code = grpc.StatusCode.NOT_FOUND


class NodeEpochOldError(LinguaError):
    """The node has a newer epoch, because it has connected again."""

    reason = common_pb2.ERROR_REASON_NODE_EPOCH_OLD
    code = grpc.StatusCode.ABORTED


class JobNotFoundError(LinguaError):
    """No job has this id, or its record has expired."""

    reason = common_pb2.ERROR_REASON_JOB_NOT_FOUND
    code = grpc.StatusCode.NOT_FOUND


class JobTimeoutError(LinguaError):
    """The job had no result by its deadline, or within the time limit of a node."""

    reason = common_pb2.ERROR_REASON_JOB_TIMEOUT
    code = grpc.StatusCode.DEADLINE_EXCEEDED


class JobCancelledError(LinguaError):
    """The job was cancelled."""

    reason = common_pb2.ERROR_REASON_JOB_CANCELLED
    code = grpc.StatusCode.CANCELLED


class JobFailedError(LinguaError):
    """Every attempt failed on its node.

    ABORTED rather than INTERNAL, because a node or the job itself failed, not the scheduler.
    """

    reason = common_pb2.ERROR_REASON_JOB_FAILED
    code = grpc.StatusCode.ABORTED


class PoolFullError(LinguaError):
    """The pools of a direction are full."""

    reason = common_pb2.ERROR_REASON_POOL_FULL
    code = grpc.StatusCode.RESOURCE_EXHAUSTED


class DrainingError(LinguaError):
    """This instance is shutting down; use another one."""

    reason = common_pb2.ERROR_REASON_DRAINING
    code = grpc.StatusCode.UNAVAILABLE


class BackpressureError(LinguaError):
    """A bounded buffer is full because a peer is too slow."""

    reason = common_pb2.ERROR_REASON_BACKPRESSURE
    code = grpc.StatusCode.RESOURCE_EXHAUSTED


class UnauthenticatedError(LinguaError):
    """The caller has no token or certificate, or an invalid one."""

    reason = common_pb2.ERROR_REASON_UNAUTHENTICATED
    code = grpc.StatusCode.UNAUTHENTICATED


class PermissionDeniedError(LinguaError):
    """The caller is known, but may not do this."""

    reason = common_pb2.ERROR_REASON_PERMISSION_DENIED
    code = grpc.StatusCode.PERMISSION_DENIED


class QuotaExceededError(LinguaError):
    """The tenant has reached a limit."""

    reason = common_pb2.ERROR_REASON_QUOTA_EXCEEDED
    code = grpc.StatusCode.RESOURCE_EXHAUSTED


class DeadlineExceededError(LinguaError):
    """The caller's deadline passed first."""

    reason = common_pb2.ERROR_REASON_DEADLINE_EXCEEDED
    code = grpc.StatusCode.DEADLINE_EXCEEDED


class BadAudioError(LinguaError):
    """The audio is not valid in its format."""

    reason = common_pb2.ERROR_REASON_BAD_AUDIO
    code = grpc.StatusCode.INVALID_ARGUMENT


class RoomNotFoundError(LinguaError):
    """There is no such room, or nobody was in it for too long."""

    reason = common_pb2.ERROR_REASON_ROOM_NOT_FOUND
    code = grpc.StatusCode.NOT_FOUND


class RoomClosedError(LinguaError):
    """The room was closed."""

    reason = common_pb2.ERROR_REASON_ROOM_CLOSED
    code = grpc.StatusCode.FAILED_PRECONDITION


class RoomFullError(LinguaError):
    """The room has as many members, speakers or languages as it may have."""

    reason = common_pb2.ERROR_REASON_ROOM_FULL
    code = grpc.StatusCode.RESOURCE_EXHAUSTED


class InternalError(LinguaError):
    """A fault of the scheduler; the log of the instance has the details."""

    reason = common_pb2.ERROR_REASON_INTERNAL
    code = grpc.StatusCode.INTERNAL


_CLASSES = {kind.reason: kind for kind in LinguaError.__subclasses__()}


def internal_error(instance_id: str) -> InternalError:
    """The error for a fault of the scheduler. The log has the cause under its `error_id`."""
    error_id = secrets.token_hex(4)
    return InternalError(
        f"internal error; see the log of instance {instance_id}, error id {error_id}",
        metadata={"instance": instance_id, "error_id": error_id},
    )


def to_proto(error: LinguaError) -> common_pb2.Error:
    """The error as a message for a stream."""
    return common_pb2.Error(
        reason=error.reason,
        message=error.message,
        retry_after_ms=error.retry_after_ms,
        field_violations=[
            common_pb2.FieldViolation(field=field, description=problem)
            for field, problem in error.fields
        ],
        metadata=error.metadata,
    )


def from_proto(error: common_pb2.Error) -> LinguaError:
    """Makes the exception that another service raised.

    A reason without a class becomes a plain LinguaError with that reason.
    """
    rebuilt = _CLASSES.get(error.reason, LinguaError)(
        error.message,
        retry_after_ms=error.retry_after_ms,
        metadata=error.metadata,
        fields=[(violation.field, violation.description) for violation in error.field_violations],
    )
    rebuilt.reason = error.reason
    return rebuilt


def to_trailing_metadata(error: LinguaError) -> tuple[tuple[str, bytes], ...]:
    """The error's details as trailing metadata of a call that ends with `error.code`.

    Reason, message and retry time are always included. If there are too many fields or facts, the
    last ones are left out, so that no error is too large to be delivered.
    """
    fields, metadata = list(error.fields), list(error.metadata.items())
    status = _status(error, fields, metadata)
    while status.ByteSize() > MAX_DETAILS_BYTES and (fields or metadata):
        (metadata or fields).pop()
        status = _status(error, fields, metadata)
    trailing: tuple[tuple[str, bytes], ...] = rpc_status.to_status(status).trailing_metadata
    return trailing


def _status(
    error: LinguaError, fields: Sequence[tuple[str, str]], metadata: Sequence[tuple[str, str]]
) -> status_pb2.Status:
    status = status_pb2.Status(code=error.code.value[0], message=error.message)
    info = error_details_pb2.ErrorInfo(
        domain=DOMAIN, reason=reason_name(error.reason), metadata=dict(metadata)
    )
    status.details.add().Pack(info)
    if error.retry_after_ms > 0:
        retry = error_details_pb2.RetryInfo()
        retry.retry_delay.FromMilliseconds(error.retry_after_ms)
        status.details.add().Pack(retry)
    if fields:
        bad_request = error_details_pb2.BadRequest()
        for field, problem in fields:
            bad_request.field_violations.add(field=field, description=problem)
        status.details.add().Pack(bad_request)
    return status


def _cut(text: str) -> str:
    """Truncates a text to `MAX_MESSAGE_BYTES` of valid UTF-8."""
    data = text.encode("utf-8", "replace")
    if len(data) > MAX_MESSAGE_BYTES:
        data = data[: MAX_MESSAGE_BYTES - 3] + b"..."
    return data.decode("utf-8", "ignore")
