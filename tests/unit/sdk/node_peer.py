"""A dispatcher that records the tokens of nodes, and answers as it is told."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc

from lingua_scheduler.sdk import Node, Token, Translated
from lingua_scheduler.v1 import dispatcher_pb2, dispatcher_pb2_grpc
from tests.unit.sdk.session_peer import PATIENCE_S


class Dispatcher(dispatcher_pb2_grpc.DispatcherServicer):
    """Welcomes or refuses nodes as the test says, and records their tokens."""

    def __init__(self) -> None:
        self.address = ""
        self.tokens: list[str] = []
        self.sends_away = False
        """Whether it welcomes nodes and asks them to reconnect at once."""
        self.answers: asyncio.Queue[tuple[bool, grpc.StatusCode | None]] = asyncio.Queue()

    def next(self, *, welcome: bool, end: grpc.StatusCode | None) -> None:
        """Sets how the next stream ends; None: it stays open."""
        self.answers.put_nowait((welcome, end))

    async def Connect(  # noqa: N802 (gRPC names it)
        self, request_iterator: Any, context: Any
    ) -> None:
        found = dict(context.invocation_metadata())
        self.tokens.append(str(found.get("authorization", "")))
        await anext(request_iterator)
        if self.sends_away:
            events = [
                dispatcher_pb2.DispatcherEvent(welcome=dispatcher_pb2.Welcome()),
                dispatcher_pb2.DispatcherEvent(reconnect=dispatcher_pb2.Reconnect(why="drain")),
            ]
            await context.write(dispatcher_pb2.DispatcherMessage(events=events))
            async for _ in request_iterator:
                pass
            return
        welcome, end = await self.answers.get()
        if welcome:
            event = dispatcher_pb2.DispatcherEvent(welcome=dispatcher_pb2.Welcome())
            await context.write(dispatcher_pb2.DispatcherMessage(events=[event]))
        if end is not None:
            await context.abort(end, "said the dispatcher")
        async for _ in request_iterator:
            pass


@contextlib.asynccontextmanager
async def running_dispatcher(
    credentials: grpc.ServerCredentials | None = None,
) -> AsyncIterator[Dispatcher]:
    """Runs a dispatcher, with TLS if there are credentials."""
    made, server = Dispatcher(), grpc.aio.server()
    dispatcher_pb2_grpc.add_DispatcherServicer_to_server(made, server)
    if credentials is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        port = server.add_secure_port("127.0.0.1:0", credentials)
    made.address = f"127.0.0.1:{port}"
    await server.start()
    yield made
    await server.stop(None)


def node_with(token: Token | None) -> Node:
    node = Node(node_id="gpu-1", asr=["en"], semantic=["en"], token=token, drain_seconds=0)

    @node.handler
    async def translate(job: object) -> Translated:
        return Translated(source="a", translated="b")

    return node


async def serve(node: Node, dispatcher: Dispatcher) -> None:
    async with asyncio.timeout(PATIENCE_S):
        await node.serve(dispatcher.address)


def counting() -> Callable[[], str]:
    """Returns a function that returns token-1, token-2 and so on."""
    numbers = iter(range(1, 100))
    return lambda: f"token-{next(numbers)}"
