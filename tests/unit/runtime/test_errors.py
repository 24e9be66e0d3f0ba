"""Errors keep their content when they are sent to a client."""

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status
from hypothesis import given
from hypothesis import strategies as st

from lingua_scheduler.services.runtime import errors
from lingua_scheduler.services.runtime.errors import (
    DependencyDownError,
    InvalidMessageError,
    LinguaError,
    NoCapableNodeError,
    from_rpc_error,
    to_proto,
    to_trailing_metadata,
)
from lingua_scheduler.statuses import DOMAIN
from lingua_scheduler.v1 import common_pb2


def as_rpc_error(error: LinguaError) -> grpc.aio.AioRpcError:
    metadata = grpc.aio.Metadata(*to_trailing_metadata(error))
    return grpc.aio.AioRpcError(error.code, trailing_metadata=metadata, details=error.message)


def failed_call(data: bytes, code: grpc.StatusCode, details: str = "") -> grpc.aio.AioRpcError:
    metadata = grpc.aio.Metadata(("grpc-status-details-bin", data))
    return grpc.aio.AioRpcError(code, trailing_metadata=metadata, details=details)


def all_errors() -> list[type[LinguaError]]:
    return LinguaError.__subclasses__()


def test_an_error_survives_the_conversion_to_a_status_and_back() -> None:
    error = InvalidMessageError(
        "the pair is malformed",
        retry_after_ms=1500,
        metadata={"drawn": "20"},
        fields=[("criteria.pair.src", "must not be empty")],
    )

    assert from_rpc_error(as_rpc_error(error)) == to_proto(error)


def test_the_details_are_the_standard_ones_of_grpc() -> None:
    error = DependencyDownError("Redis is away", retry_after_ms=250, metadata={"after": "400"})
    ((key, data),) = to_trailing_metadata(error)

    status = status_pb2.Status.FromString(data)
    info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
    assert status.details[0].Unpack(info)
    assert status.details[1].Unpack(retry)

    assert key == "grpc-status-details-bin"
    assert status.code == grpc.StatusCode.UNAVAILABLE.value[0]
    assert status.message == "Redis is away"
    assert info.domain == "lingua-scheduler"
    assert info.reason == "SCHEDULER_DEPENDENCY_DOWN"
    assert dict(info.metadata) == {"after": "400"}
    assert retry.retry_delay.ToMilliseconds() == 250
    # It refuses details that contradict the status.
    assert rpc_status.from_call(as_rpc_error(error)) == status


def test_details_without_content_are_left_out() -> None:
    ((_, data),) = to_trailing_metadata(NoCapableNodeError("nobody speaks it"))

    assert len(status_pb2.Status.FromString(data).details) == 1


@pytest.mark.parametrize("kind", all_errors())
def test_every_error_has_a_docstring_and_survives_the_conversion(kind: type[LinguaError]) -> None:
    back = from_rpc_error(as_rpc_error(kind("why")))

    assert kind.__doc__ != LinguaError.__doc__
    assert back is not None
    assert back.reason == kind.reason
    assert kind.code is not grpc.StatusCode.OK
    assert kind.code is not grpc.StatusCode.UNKNOWN


def test_no_two_errors_share_a_reason() -> None:
    reasons = [kind.reason for kind in all_errors()]

    assert len(set(reasons)) == len(reasons)
    assert common_pb2.ERROR_REASON_UNSPECIFIED not in reasons


@given(
    message=st.text(st.characters(), max_size=5000),
    metadata=st.dictionaries(st.text(max_size=50), st.text(max_size=2000), max_size=30),
    fields=st.lists(st.tuples(st.text(max_size=50), st.text(max_size=2000)), max_size=30),
)
def test_no_error_is_too_large_or_malformed_to_be_delivered(
    message: str, metadata: dict[str, str], fields: list[tuple[str, str]]
) -> None:
    error = InvalidMessageError(message, metadata=metadata, fields=fields, retry_after_ms=7)
    ((_, data),) = to_trailing_metadata(error)
    back = from_rpc_error(as_rpc_error(error))

    assert len(data) <= errors.MAX_DETAILS_BYTES
    assert len(error.message.encode()) <= errors.MAX_MESSAGE_BYTES
    assert back is not None
    assert back.message == error.message
    assert back.retry_after_ms == 7


def test_text_that_is_not_valid_unicode_does_not_hide_the_error() -> None:
    assert to_proto(InvalidMessageError("half a pair: \ud800")).message == "half a pair: ?"


def test_a_status_of_grpc_itself_is_not_an_error_of_ours() -> None:
    assert from_rpc_error(grpc.RpcError()) is None
    assert from_rpc_error(grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE)) is None


def test_malformed_or_foreign_details_are_not_an_error_of_ours() -> None:
    foreign = status_pb2.Status()
    foreign.details.add().Pack(error_details_pb2.ErrorInfo(domain="elsewhere.example"))
    for data in (b"\xff\xff\xff", foreign.SerializeToString()):
        assert from_rpc_error(failed_call(data, grpc.StatusCode.OK)) is None


def test_details_that_contradict_the_status_are_not_an_error_of_ours() -> None:
    ((_, data),) = to_trailing_metadata(NoCapableNodeError("nobody speaks it"))
    code = NoCapableNodeError.code

    assert from_rpc_error(failed_call(data, code, "nobody speaks it")) is not None
    assert from_rpc_error(failed_call(data, grpc.StatusCode.INTERNAL, "nobody speaks it")) is None
    assert from_rpc_error(failed_call(data, code, "something else")) is None


def test_an_unknown_reason_becomes_unspecified_and_keeps_its_message() -> None:
    code = grpc.StatusCode.ABORTED
    status = status_pb2.Status(code=code.value[0], message="new trouble")
    info = error_details_pb2.ErrorInfo(domain=DOMAIN, reason="NOT_YET_KNOWN")
    status.details.add().Pack(info)

    back = from_rpc_error(failed_call(status.SerializeToString(), code, "new trouble"))

    assert back == common_pb2.Error(message="new trouble")
