"""The scheduler's errors, as a client reads them from a failed call."""

from collections.abc import Awaitable

import grpc
import pytest

from lingua_scheduler.services.runtime.errors import from_rpc_error
from lingua_scheduler.v1 import common_pb2


async def failure(call: Awaitable[object]) -> tuple[grpc.StatusCode, str, common_pb2.Error]:
    """The status, the reason without its prefix, and the error that a call fails with."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    said = from_rpc_error(caught.value)
    assert said is not None, f"not an error of the scheduler: {caught.value!r}"
    return caught.value.code(), reason(said), said


def reason(error: common_pb2.Error) -> str:
    """The name of the reason without its prefix."""
    return common_pb2.ErrorReason.Name(error.reason).removeprefix("ERROR_REASON_")
