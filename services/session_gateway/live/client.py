"""The client of a session, whatever transport it uses."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeAlias

import grpc

from lingua_scheduler.services.session_gateway.session.speech import Direction
from lingua_scheduler.v1 import session_pb2

Context = grpc.aio.ServicerContext[Any, Any]


Take: TypeAlias = Callable[[session_pb2.AudioChunk], bool]
"""Handles a chunk; False if the session does not read now, and has not handled it."""
Extend: TypeAlias = Callable[[int, bytes, int, Direction], bool]
"""Takes a chunk that only continues its speech, given as seq, data, client_ms and direction.

False if there is more to do with it: the chunk has to be handled in another way.
"""


class Client(Protocol):
    """One connected client, as its session sees it.

    Its messages come separately, as an async iterator. If that ends, the client has sent all it has
    to say and still reads, as when a gRPC stream is half-closed. If the iterator raises
    InvalidMessageError, the session ends with that error. If it raises anything else, or the task
    is cancelled, the connection is lost, and the session can be resumed.
    """

    transport: str
    """Its transport, as a label in metrics and traces."""
    traceparent: str
    """The W3C trace context that it sent; empty if it sent none."""

    def opened(self, session: session_pb2.NewSession, take: Take, extend: Extend) -> None:
        """Its session is open.

        `take` and `extend` may be called while the iterator is awaited and has nothing before the
        chunk.

        Args:
            session: how it was opened, now or before it was resumed.
            take: handles a chunk at once.
            extend: does the same for most chunks at a fraction of the cost.
        """

    def write(self, data: bytes) -> Awaitable[None]:
        """Sends a ServerMessage, serialized. Returns when there is room for the next one."""

    def beat(self) -> bool:
        """Sends an empty message at once; False if it cannot, and has not."""


class GrpcClient:
    """The client of a Converse call."""

    transport = "grpc"

    def __init__(self, context: Context) -> None:
        # At run time this is a plain tuple of pairs, whatever its type says.
        metadata = dict(context.invocation_metadata() or ())
        self.traceparent = str(metadata.get("traceparent", ""))
        self.write = context.write

    def opened(self, session: session_pb2.NewSession, take: Take, extend: Extend) -> None:
        """Nothing to do: its messages are complete, and come by the iterator."""

    def beat(self) -> bool:
        """Not offered: a write of gRPC has to be awaited."""
        return False
