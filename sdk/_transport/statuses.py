"""What a call's status says, where a server has ended it with one."""

from collections.abc import Callable, Iterable

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from lingua_scheduler.sdk._transport.effects import Lost, Refused
from lingua_scheduler.v1 import common_pb2

_DOMAIN = "lingua-scheduler"
_DETAILS_KEY = "grpc-status-details-bin"

# Where the status comes without details: from a proxy, or another kind of server.
_REASONS = {
    grpc.StatusCode.UNAUTHENTICATED: common_pb2.ERROR_REASON_UNAUTHENTICATED,
    grpc.StatusCode.PERMISSION_DENIED: common_pb2.ERROR_REASON_PERMISSION_DENIED,
    grpc.StatusCode.INVALID_ARGUMENT: common_pb2.ERROR_REASON_INVALID_MESSAGE,
    grpc.StatusCode.ALREADY_EXISTS: common_pb2.ERROR_REASON_NODE_ID_CONFLICT,
}


def ending_of(error: grpc.aio.AioRpcError, *, service: str, hint: str = "") -> Lost | Refused:
    """How a stream ended that failed: refused with a reason, or just lost.

    Args:
        error: what gRPC raised.
        service: what is expected at the other end, for the message where it is something else.
        hint: what to do about it, where that is known.
    """
    code, details = error.code(), error.details() or ""
    said = _details(error)
    if said is not None and said.reason != common_pb2.ERROR_REASON_UNSPECIFIED:
        return Refused(said)
    reason = _REASONS.get(code)
    if reason is not None:
        return Refused(common_pb2.Error(reason=reason, message=details))
    if code is grpc.StatusCode.UNIMPLEMENTED:
        details = f"this is no {service} ({details})"
    return Lost(f"{code.name}: {details}{f'; {hint}' if hint else ''}")


def _details(error: grpc.aio.AioRpcError) -> common_pb2.Error | None:
    trailing: Callable[[], Iterable[tuple[str, str | bytes]] | None] = error.trailing_metadata
    for key, value in trailing() or ():
        if key == _DETAILS_KEY and isinstance(value, bytes):
            return _read(value)
    return None


def _read(data: bytes) -> common_pb2.Error | None:
    info = error_details_pb2.ErrorInfo()
    retry = error_details_pb2.RetryInfo()
    bad_request = error_details_pb2.BadRequest()
    try:
        status = status_pb2.Status.FromString(data)
        for detail in status.details:
            for part in (info, retry, bad_request):
                detail.Unpack(part)
    except DecodeError:
        return None
    known = common_pb2.ErrorReason.DESCRIPTOR.values_by_name.get(f"ERROR_REASON_{info.reason}")
    if info.domain != _DOMAIN or known is None:
        return None
    return common_pb2.Error(
        reason=common_pb2.ErrorReason.ValueType(known.number),
        message=status.message,
        retry_after_ms=max(0, retry.retry_delay.ToMilliseconds()),
        field_violations=[
            common_pb2.FieldViolation(field=each.field, description=each.description)
            for each in bad_request.field_violations
        ],
        metadata=info.metadata,
    )
