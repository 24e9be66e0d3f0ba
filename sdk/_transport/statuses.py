"""How a stream ended, by its gRPC status."""

import grpc

from lingua_scheduler.sdk._transport.endings import Lost, Refused
from lingua_scheduler.statuses import from_rpc_error
from lingua_scheduler.v1 import common_pb2

# For a status without details, from a proxy or another kind of server.
_REASONS = {
    grpc.StatusCode.UNAUTHENTICATED: common_pb2.ERROR_REASON_UNAUTHENTICATED,
    grpc.StatusCode.PERMISSION_DENIED: common_pb2.ERROR_REASON_PERMISSION_DENIED,
    grpc.StatusCode.INVALID_ARGUMENT: common_pb2.ERROR_REASON_INVALID_MESSAGE,
    grpc.StatusCode.ALREADY_EXISTS: common_pb2.ERROR_REASON_NODE_ID_CONFLICT,
}


def ending_of(error: grpc.aio.AioRpcError, *, service: str, hint: str = "") -> Lost | Refused:
    """Returns whether a failed stream was refused with a reason, or just lost.

    Args:
        error: raised by gRPC.
        service: the service that is expected at the other end, for the error message.
        hint: what to do about the failure, if known.
    """
    code, details = error.code(), error.details() or ""
    said = from_rpc_error(error)
    if said is not None and said.reason != common_pb2.ERROR_REASON_UNSPECIFIED:
        return Refused(said)
    reason = _REASONS.get(code)
    if reason is not None:
        return Refused(common_pb2.Error(reason=reason, message=details))
    if code is grpc.StatusCode.UNIMPLEMENTED:
        details = f"the server is not a {service} ({details})"
    return Lost(f"{code.name}: {details}{f'; {hint}' if hint else ''}")
