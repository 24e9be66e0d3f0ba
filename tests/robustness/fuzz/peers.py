"""Calls of every method of the contract with bytes of any kind."""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

import grpc
from google.protobuf.descriptor import Descriptor, MethodDescriptor

from lingua_scheduler.v1 import dispatcher_pb2, pool_pb2, session_pb2

# A stream that has said all, and is not ended by the service, is left after this.
LEFT_S = 0.4
UNARY_S = 10.0

CANCELLED = grpc.StatusCode.CANCELLED
# What grpc.aio says by itself where it writes to a stream that the server has just ended.
OWN_ERROR = "Internal error from Core"


@dataclass(frozen=True)
class Method:
    """One method of one service; `service` is its name in a world, such as "pool"."""

    service: str
    path: str
    takes: Descriptor
    is_stream: bool

    def __str__(self) -> str:
        return self.path.rpartition("/")[2]


def _methods() -> list[Method]:
    files = {"gateway": session_pb2, "dispatcher": dispatcher_pb2, "pool": pool_pb2}
    found = []
    for service, module in files.items():
        for described in module.DESCRIPTOR.services_by_name.values():
            method: MethodDescriptor
            for method in described.methods:
                path = f"/{described.full_name}/{method.name}"
                found.append(Method(service, path, method.input_type, method.client_streaming))
    return found


METHODS = _methods()


async def call(channel: grpc.aio.Channel, method: Method, said: Sequence[bytes]) -> grpc.StatusCode:
    """Says these bytes and nothing else; returns the status. CANCELLED: the peer had to leave."""
    if not method.is_stream:
        unary = channel.unary_unary(method.path)(said[0], timeout=UNARY_S)
        return await unary.code()
    stream = channel.stream_stream(method.path)()
    try:
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            for each in said:
                await stream.write(each)
            await stream.done_writing()
        with contextlib.suppress(TimeoutError, grpc.aio.AioRpcError):
            async with asyncio.timeout(LEFT_S):
                while await stream.read() is not grpc.aio.EOF:
                    pass
        if not stream.done() or await stream.details() == OWN_ERROR:
            stream.cancel()
            return CANCELLED
        return await stream.code()
    finally:
        stream.cancel()
