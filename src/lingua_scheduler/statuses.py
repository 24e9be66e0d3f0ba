"""Decodes the errors that services attach to gRPC statuses. The SDK and the services share it.

A service ends a failed call with a `google.rpc.Status` that has an ErrorInfo of this domain and, if
they apply, a RetryInfo and a BadRequest. `from_rpc_error` turns it back into the contract's `Error`
message. Imports no other module of this project except the generated code.
"""

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from lingua_scheduler.v1 import common_pb2

DOMAIN = "lingua-scheduler"

_REASON_PREFIX = "ERROR_REASON_"


def reason_name(reason: common_pb2.ErrorReason.ValueType) -> str:
    """Returns the reason without its prefix, such as `NO_CAPABLE_NODE`.

    A reason that only a newer peer knows is returned as its number.
    """
    known = common_pb2.ErrorReason.DESCRIPTOR.values_by_number.get(reason)
    return known.name.removeprefix(_REASON_PREFIX) if known else str(reason)


def from_rpc_error(error: grpc.RpcError) -> common_pb2.Error | None:
    """Returns the error that a service of this project attached to a failed call.

    Returns None if the error comes from elsewhere (gRPC itself, a proxy, another domain), or if
    its details are malformed or contradict the status. A reason that this version does not know
    becomes ERROR_REASON_UNSPECIFIED.
    """
    # A bare RpcError has no status; those that calls raise do.
    if not hasattr(error, "trailing_metadata"):
        return None
    try:
        status = rpc_status.from_call(error)
        return None if status is None else _error_in(status)
    except (DecodeError, TypeError, ValueError):
        return None


def _error_in(status: status_pb2.Status) -> common_pb2.Error | None:
    info = error_details_pb2.ErrorInfo()
    retry = error_details_pb2.RetryInfo()
    bad_request = error_details_pb2.BadRequest()
    for detail in status.details:
        for part in (info, retry, bad_request):
            detail.Unpack(part)
    if info.domain != DOMAIN:
        return None
    known = common_pb2.ErrorReason.DESCRIPTOR.values_by_name.get(_REASON_PREFIX + info.reason)
    number = known.number if known else common_pb2.ERROR_REASON_UNSPECIFIED
    return common_pb2.Error(
        reason=common_pb2.ErrorReason.ValueType(number),
        message=status.message,
        retry_after_ms=max(0, retry.retry_delay.ToMilliseconds()),
        field_violations=[
            common_pb2.FieldViolation(field=each.field, description=each.description)
            for each in bad_request.field_violations
        ],
        metadata=info.metadata,
    )
