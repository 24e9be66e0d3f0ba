"""A stream that reconnects by itself, to instances that drain, freeze, fail or are not fit."""

import asyncio
import contextlib
import gc
import socket
import weakref
from collections.abc import AsyncIterator
from typing import Any

import grpc

from lingua_scheduler.services.runtime.rpc.channels import Dialer
from lingua_scheduler.services.runtime.rpc.client_stream import ClientStream, StreamEnd
from lingua_scheduler.services.runtime.rpc.reconnecting import ReconnectingStream
from lingua_scheduler.services.runtime.rpc.renewed_channel import RenewedChannel
from lingua_scheduler.services.runtime.settings.settings import load_settings
from lingua_scheduler.v1 import dispatcher_pb2, dispatcher_pb2_grpc
from tests.conftest import Eventually

SUBMIT = dispatcher_pb2.DESCRIPTOR.services_by_name["Dispatcher"].methods_by_name["Submit"]


class Instance(dispatcher_pb2_grpc.DispatcherServicer):
    """An instance that answers every message with an empty one, as long as the test allows it."""

    def __init__(self) -> None:
        self.streams = 0
        self.answers = asyncio.Event()
        self.answers.set()
        self.drain = asyncio.Event()

    async def Submit(  # noqa: N802 - the contract's name
        self, request_iterator: AsyncIterator[dispatcher_pb2.SubmitRequest], context: Any
    ) -> None:
        self.streams += 1

        async def read() -> None:
            async for _ in request_iterator:
                await self.answers.wait()
                await context.write(dispatcher_pb2.SubmitResponse())

        reading = asyncio.create_task(read())
        draining = asyncio.create_task(self.drain.wait())
        try:
            await asyncio.wait((reading, draining), return_when=asyncio.FIRST_COMPLETED)
        finally:
            reading.cancel()
            draining.cancel()


@contextlib.asynccontextmanager
async def served(port: int = 0) -> AsyncIterator[tuple[Instance, int]]:
    """An instance, and its port."""
    instance, server = Instance(), grpc.aio.server()
    dispatcher_pb2_grpc.add_DispatcherServicer_to_server(instance, server)
    port = server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    try:
        yield instance, port
    finally:
        await server.stop(None)


class Peer:
    """Reads until the end, and writes only if the instance is to be asked."""

    def __init__(self, stream: ClientStream) -> None:
        self.stream = stream
        self.asked = asyncio.Event()
        self.asked_times = 0

    async def read(self) -> None:
        silence = self.stream.watch(self.asked.set)
        while await self.stream.read() is not grpc.aio.EOF:
            silence.heard = True

    async def write(self) -> None:
        while True:
            await self.asked.wait()
            self.asked.clear()
            self.asked_times += 1
            await self.stream.write(b"")


class Owner:
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.fit = True
        self.streams: list[weakref.ref[ClientStream]] = []
        self.ends: list[StreamEnd] = []
        self.downs: list[str] = []
        self.changes: list[bool] = []

    def new_peer(self, stream: ClientStream) -> Peer:
        self.streams.append(weakref.ref(stream))
        return Peer(stream)

    def is_fit(self, peer: Peer, greeting: Any) -> bool:
        assert isinstance(greeting, dispatcher_pb2.SubmitResponse)
        return self.fit

    def on_current(self, peer: Peer, replaced: Peer | None) -> None:
        if replaced is not None:
            replaced.stream.cut("replaced")

    def on_end(self, peer: Peer, end: StreamEnd) -> None:
        self.ends.append(end)

    def on_down(self, reason: str) -> None:
        self.downs.append(reason)


@contextlib.asynccontextmanager
async def connected(
    address: str, *, greet_within_s: float = 10.0, silence_ms: int = 60_000, handover_s: float = 0.0
) -> AsyncIterator[tuple[ReconnectingStream[Peer], Owner]]:
    owner = Owner()
    dialer = Dialer(load_settings({}))
    client: ReconnectingStream[Peer] = ReconnectingStream(
        service="instance",
        channel=RenewedChannel(address=address, dialer=dialer, renew_ms=0),
        method=SUBMIT,
        silence_ms=silence_ms,
        greet_within_s=greet_within_s,
        handover_s=handover_s,
        owner=owner,
    )
    client.on_change.append(lambda up, _: owner.changes.append(up))
    await client.open()
    try:
        yield client, owner
    finally:
        await client.close()


async def test_a_draining_instance_is_left_for_another_without_being_down(
    eventually: Eventually,
) -> None:
    async with served() as (one, first), served() as (two, second):
        # Both are known; calls go to each in turn.
        address = f"127.0.0.1:{first},127.0.0.1:{second}"
        async with connected(address, handover_s=60.0) as (client, owner):
            await eventually(lambda: client.up)
            old = client.current
            instance = one if one.streams else two
            instance.drain.set()
            await eventually(lambda: client.current not in (old, None))
            assert client.up
            assert client.accepts
            assert owner.downs == []
            assert owner.changes[1:] == []
            assert owner.ends[0].clean
            assert not owner.ends[0].frozen


async def test_a_killed_instance_is_down_at_once_and_found_again(eventually: Eventually) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    async with contextlib.AsyncExitStack() as stack:
        async with served(port):
            client, owner = await stack.enter_async_context(
                connected(f"127.0.0.1:{port}", handover_s=0.0)
            )
            await eventually(lambda: client.up)
        await eventually(lambda: not client.up)
        assert not client.accepts
        assert client.down_reason
        assert len(owner.downs) == 1
        async with served(port):
            await eventually(lambda: client.up)
            assert client.accepts
            assert client.down_reason == ""
            assert owner.changes == [True, False, True]


async def test_an_instance_that_does_not_greet_is_given_up_and_gets_a_new_connection(
    eventually: Eventually,
) -> None:
    async with served() as (instance, port):
        instance.answers.clear()
        async with connected(f"127.0.0.1:{port}", greet_within_s=0.2) as (client, owner):
            assert not client.up
            await eventually(lambda: "no answer within 200 ms" in client.down_reason)
            first = client.channel.current
            await eventually(lambda: client.channel.current is not first)
            await eventually(lambda: len(owner.downs) == 1)
            instance.answers.set()
            await eventually(lambda: client.up)
            assert owner.changes == [True]


async def test_an_instance_that_falls_silent_is_left(eventually: Eventually) -> None:
    async with (
        served() as (instance, port),
        connected(f"127.0.0.1:{port}", silence_ms=600) as (client, owner),
    ):
        await eventually(lambda: client.up)
        current = client.current
        assert current is not None
        # As long as it answers when it is asked, it stays.
        await eventually(lambda: current.asked_times >= 3)
        assert client.current is current
        instance.answers.clear()
        await eventually(lambda: owner.ends != [])
        assert owner.ends[0].frozen
        assert "has said nothing" in owner.ends[0].reason
        instance.answers.set()
        await eventually(lambda: client.current not in (current, None))


async def test_a_retired_stream_goes_on_beside_the_new_one(eventually: Eventually) -> None:
    async with served() as (_, port), connected(f"127.0.0.1:{port}") as (client, owner):
        await eventually(lambda: client.up)
        old = client.current
        assert old is not None
        client.retire(old, "it is draining")
        client.retire(old, "it is draining")
        assert client.current is None
        await eventually(lambda: client.current is not None)
        assert client.current is not old
        assert old in client.peers
        assert owner.ends == []
        assert owner.changes[1:] == [False, True]


async def test_an_instance_that_is_not_fit_replaces_no_other(eventually: Eventually) -> None:
    async with served() as (instance, port), connected(f"127.0.0.1:{port}") as (client, owner):
        await eventually(lambda: client.up)
        current, owner.fit = client.current, False
        streams = instance.streams
        client.look_elsewhere()
        await eventually(lambda: instance.streams >= streams + 3)
        assert client.current is current
        owner.fit = True
        while client.current is current:
            client.look_elsewhere()
            await asyncio.sleep(0.05)
        await eventually(lambda: owner.ends != [])
        assert owner.ends[0] == StreamEnd("replaced")
        assert client.up


async def test_a_client_that_is_closed_leaves_no_task_and_may_be_opened_again(
    eventually: Eventually,
) -> None:
    async with served() as (_, port):
        tasks = asyncio.all_tasks()
        async with connected(f"127.0.0.1:{port}") as (client, owner):
            await eventually(lambda: client.up)
            await client.close()
            assert not client.is_open
            assert not client.accepts
            assert client.peers == {}
            assert owner.changes == [True, False]
            await client.open()
            await eventually(lambda: client.up)
        left = asyncio.all_tasks() - tasks
        assert not [task for task in left if "lingua" in repr(task.get_coro())]


async def test_a_stream_that_is_over_is_freed_at_once_and_with_it_its_connection(
    eventually: Eventually,
) -> None:
    def living(owner: Owner) -> int:
        return sum(stream() is not None for stream in owner.streams)

    gc.disable()
    try:
        async with (
            served() as (instance, port),
            connected(f"127.0.0.1:{port}", greet_within_s=0.5, silence_ms=300) as (client, owner),
        ):
            await eventually(lambda: client.up)
            # Streams that fall silent, and that are not even greeted.
            instance.answers.clear()
            await eventually(lambda: len(owner.streams) >= 4)
            instance.answers.set()
            # Streams that are ended by the instance.
            await eventually(lambda: client.up)
            instance.drain.set()
            await eventually(lambda: len(owner.ends) >= 2)
            instance.drain.clear()
            await eventually(lambda: client.up)
            await eventually(lambda: living(owner) == 1)
    finally:
        gc.enable()
