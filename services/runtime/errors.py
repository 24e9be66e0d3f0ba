"""Every exception that the scheduler raises on purpose, and how each travels.

A service raises a `LinguaError`; the gRPC frame turns it into a status with details. On a stream
the same content is an `Error` message (`to_proto`). Clients read it back with `from_rpc_error`, and
raise it again with `from_proto`.
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

# A peer may drop answers whose metadata is over 8 KiB. The message is in there twice, once
# percent-encoded (up to three bytes for each), and the details grow by a third in base64.
MAX_MESSAGE_BYTES = 1024
MAX_DETAILS_BYTES = 3 * 1024


class SettingsError(Exception):
    """The process cannot start as it is set up; the message has one line per problem."""


class LinguaError(Exception):
    """An error with a reason that clients can act on.

    Args:
        message: one sentence for a person; cut at `MAX_MESSAGE_BYTES`.
        retry_after_ms: over 0 when a retry may help after this time.
        metadata: facts for tools.
        fields: pairs of a bad field's path and what is wrong with it.
    """

    # Fixed by the class, but for an error of another service whose reason has no class here.
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
    """No known node can do this direction with these requirements.

    FAILED_PRECONDITION and not NOT_FOUND: what was asked for is not missing, the fleet lacks it.
    """

    reason = common_pb2.ERROR_REASON_NO_CAPABLE_NODE
    code = grpc.StatusCode.FAILED_PRECONDITION


class AllCandidatesFullOrFailedError(LinguaError):
    """Capable nodes exist, but none of those drawn is ready and has room."""

    reason = common_pb2.ERROR_REASON_ALL_CANDIDATES_FULL_OR_FAILED
    code = grpc.StatusCode.RESOURCE_EXHAUSTED


class PreferredNodeNotCapableError(LinguaError):
    """The node that the caller asked for cannot do this job."""

    reason = common_pb2.ERROR_REASON_PREFERRED_NODE_NOT_CAPABLE
    code = grpc.StatusCode.FAILED_PRECONDITION


class BoundNodeFullError(LinguaError):
    """The node that holds the turn's audio is only full, and the caller asked to be told."""

    reason = common_pb2.ERROR_REASON_BOUND_NODE_FULL
    code = grpc.StatusCode.RESOURCE_EXHAUSTED


class HeldAudioNeededError(LinguaError):
    """The job needs audio that a node held, and cannot go to that node."""

    reason = common_pb2.ERROR_REASON_HELD_AUDIO_NEEDED
    code = grpc.StatusCode.FAILED_PRECONDITION


class DependencyDownError(LinguaError):
    """Redis cannot be reached, is too slow, or refuses writes; nothing was promised.

    Args:
        message: what callers are told: what it is that does not work.
        why: for the log only, since it may name addresses.
    """

    reason = common_pb2.ERROR_REASON_SCHEDULER_DEPENDENCY_DOWN
    code = grpc.StatusCode.UNAVAILABLE

    def __init__(self, message: str, *, why: str = "", **details: Any) -> None:
        super().__init__(message, **details)
        self.why = why

    def __str__(self) -> str:
        return f"{self.message}: {self.why}" if self.why else self.message


class SessionNotFoundError(LinguaError):
    """No session has this id and token, or it was forgotten."""

    reason = common_pb2.ERROR_REASON_SESSION_NOT_FOUND
    code = grpc.StatusCode.NOT_FOUND


class SessionTakenOverError(LinguaError):
    """A newer epoch of the session has replaced the one that speaks."""

    reason = common_pb2.ERROR_REASON_SESSION_TAKEN_OVER
    code = grpc.StatusCode.ABORTED


class NodeIdConflictError(LinguaError):
    """A live node has this id already."""

    reason = common_pb2.ERROR_REASON_NODE_ID_CONFLICT
    code = grpc.StatusCode.ALREADY_EXISTS


class NodeNotFoundError(LinguaError):
    """No node has this id."""

    reason = common_pb2.ERROR_REASON_NODE_NOT_FOUND
    code = grpc.StatusCode.NOT_FOUND


class NodeEpochOldError(LinguaError):
    """A newer connection of the same node has replaced the one that speaks."""

    reason = common_pb2.ERROR_REASON_NODE_EPOCH_OLD
    code = grpc.StatusCode.ABORTED


class JobNotFoundError(LinguaError):
    """No job has this id, or it was forgotten."""

    reason = common_pb2.ERROR_REASON_JOB_NOT_FOUND
    code = grpc.StatusCode.NOT_FOUND


class JobTimeoutError(LinguaError):
    """The job had no result by its deadline, or within the time that a node has for it."""

    reason = common_pb2.ERROR_REASON_JOB_TIMEOUT
    code = grpc.StatusCode.DEADLINE_EXCEEDED


class JobCancelledError(LinguaError):
    """Somebody has cancelled the job."""

    reason = common_pb2.ERROR_REASON_JOB_CANCELLED
    code = grpc.StatusCode.CANCELLED


class JobFailedError(LinguaError):
    """Every attempt failed on its node.

    ABORTED and not INTERNAL: the scheduler did its part; what failed is a node, or the job itself.
    """

    reason = common_pb2.ERROR_REASON_JOB_FAILED
    code = grpc.StatusCode.ABORTED


class PoolFullError(LinguaError):
    """The pair has as many nodes as its pools can hold."""

    reason = common_pb2.ERROR_REASON_POOL_FULL
    code = grpc.StatusCode.RESOURCE_EXHAUSTED


class DrainingError(LinguaError):
    """This instance is going away; another one will serve."""

    reason = common_pb2.ERROR_REASON_DRAINING
    code = grpc.StatusCode.UNAVAILABLE


class BackpressureError(LinguaError):
    """A slow peer let too much pile up."""

    reason = common_pb2.ERROR_REASON_BACKPRESSURE
    code = grpc.StatusCode.RESOURCE_EXHAUSTED


class UnauthenticatedError(LinguaError):
    """The caller did not say who it is, or what it said does not hold."""

    reason = common_pb2.ERROR_REASON_UNAUTHENTICATED
    code = grpc.StatusCode.UNAUTHENTICATED


class PermissionDeniedError(LinguaError):
    """It is known who calls, and that one may not do this."""

    reason = common_pb2.ERROR_REASON_PERMISSION_DENIED
    code = grpc.StatusCode.PERMISSION_DENIED


class QuotaExceededError(LinguaError):
    """The tenant uses as much as it may."""

    reason = common_pb2.ERROR_REASON_QUOTA_EXCEEDED
    code = grpc.StatusCode.RESOURCE_EXHAUSTED


class DeadlineExceededError(LinguaError):
    """The caller's deadline passed first."""

    reason = common_pb2.ERROR_REASON_DEADLINE_EXCEEDED
    code = grpc.StatusCode.DEADLINE_EXCEEDED


class BadAudioError(LinguaError):
    """Audio that cannot be what its format says."""

    reason = common_pb2.ERROR_REASON_BAD_AUDIO
    code = grpc.StatusCode.INVALID_ARGUMENT


class InternalError(LinguaError):
    """A fault of the scheduler itself; the log of the instance has the rest."""

    reason = common_pb2.ERROR_REASON_INTERNAL
    code = grpc.StatusCode.INTERNAL


_CLASSES = {kind.reason: kind for kind in LinguaError.__subclasses__()}


def internal_error(instance_id: str) -> InternalError:
    """An error for a fault of ours. Its `error_id` goes to the log, beside what really happened."""
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
    """The exception that another service raised: of the reason's class, with all that was said.

    A reason without a class of its own makes a plain LinguaError that keeps the reason.
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

    Reason, message and retry time always arrive. Of very many fields or facts the last are left
    out, so that no error is too large to be delivered.
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
    """The text as valid UTF-8 of at most `MAX_MESSAGE_BYTES`."""
    data = text.encode("utf-8", "replace")
    if len(data) > MAX_MESSAGE_BYTES:
        data = data[: MAX_MESSAGE_BYTES - 3] + b"..."
    return data.decode("utf-8", "ignore")
