"""Start, health, reflection, drain and signals of the gRPC server, on real sockets."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from prometheus_client import CollectorRegistry

from lingua_scheduler.services.runtime.errors import SettingsError
from lingua_scheduler.services.runtime.rpc.health import LIVENESS
from lingua_scheduler.services.runtime.rpc.message_sizes import between_services
from lingua_scheduler.services.runtime.rpc.server import GrpcServer
from tests.conftest import Eventually
from tests.security.stranger import PING, Stranger, call, message

SERVICE = "test.Frame"
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
SERVICE_UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


class Slow:
    """A service with one call that ends when it is told to."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.release = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def wait(self, request: bytes, context: object) -> bytes:
        self.entered.set()
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return b"done"

    def register(self, server: grpc.aio.Server) -> None:
        handlers = {"Wait": grpc.unary_unary_rpc_method_handler(self.wait)}
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE, handlers)])


def make_server(slow: Slow, **overrides: Any) -> GrpcServer:
    options: dict[str, Any] = {
        "listen": "127.0.0.1:0",
        "variable": "LINGUA_POOL_LISTEN",
        "services": [(SERVICE, slow.register)],
        "instance_id": "pool-0",
        "max_message_bytes": 100_000,
        "keepalive_time_ms": 20_000,
        "keepalive_timeout_ms": 5000,
        "drain_grace_ms": 20_000,
    }
    return GrpcServer(**{**options, **overrides})


@pytest.fixture
async def slow() -> Slow:
    return Slow()


@pytest.fixture
async def server(slow: Slow) -> AsyncIterator[GrpcServer]:
    server = make_server(slow)
    yield server
    slow.release.set()
    await server.drain()


async def health_of(channel: grpc.aio.Channel, service: str) -> int:
    stub = health_pb2_grpc.HealthStub(channel)
    response = await stub.Check(health_pb2.HealthCheckRequest(service=service))
    return int(response.status)


async def test_health_flips_for_the_server_and_for_each_service(server: GrpcServer) -> None:
    async with grpc.aio.insecure_channel(await server.start()) as channel:
        for serving, expected in ((False, NOT_SERVING), (True, SERVING), (False, NOT_SERVING)):
            server.set_serving(serving)
            assert await health_of(channel, "") == expected
            assert await health_of(channel, SERVICE) == expected
            # A process that waits for Redis is not one to be restarted.
            assert await health_of(channel, LIVENESS) == SERVING


async def test_the_health_of_a_service_that_is_not_there_is_not_found(server: GrpcServer) -> None:
    async with grpc.aio.insecure_channel(await server.start()) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await health_of(channel, "test.Other")
        watch = health_pb2_grpc.HealthStub(channel).Watch(
            health_pb2.HealthCheckRequest(service="test.Other")
        )
        first = await watch.read()
        watch.cancel()

    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    assert first.status == SERVICE_UNKNOWN


async def test_requests_and_responses_have_limits_of_their_own() -> None:
    async def repeat(request: bytes, context: object) -> bytes:
        return b"x" * int(request[:20])

    def register(server: grpc.aio.Server) -> None:
        handlers = {"Repeat": grpc.unary_unary_rpc_method_handler(repeat)}
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE, handlers)])

    async def code_of(channel: grpc.aio.Channel, request: int, response: int) -> str:
        call: Any = channel.unary_unary(f"/{SERVICE}/Repeat")
        try:
            await call(str(response).encode().ljust(request))
        except grpc.aio.AioRpcError as error:
            return error.code().name
        return "OK"

    server = make_server(Slow(), services=[(SERVICE, register)], max_request_bytes=10_000)
    try:
        async with grpc.aio.insecure_channel(await server.start()) as channel:
            assert await code_of(channel, 10_000, 1) == "OK"
            assert await code_of(channel, 10_001, 1) == "RESOURCE_EXHAUSTED"
            assert await code_of(channel, 100, between_services(100_000)) == "OK"
            assert (
                await code_of(channel, 100, between_services(100_000) + 1) == "RESOURCE_EXHAUSTED"
            )
    finally:
        await server.drain()


async def test_a_health_watch_hears_of_every_change_and_does_not_hold_up_the_drain(
    server: GrpcServer,
) -> None:
    async with grpc.aio.insecure_channel(await server.start()) as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        assert (await watch.read()).status == NOT_SERVING
        server.set_serving(True)
        assert (await watch.read()).status == SERVING

        async with asyncio.timeout(10):  # the grace period is twice as long
            await server.drain()

        assert (await watch.read()).status == NOT_SERVING
        assert await watch.read() is grpc.aio.EOF


async def test_a_draining_server_cannot_become_serving(server: GrpcServer) -> None:
    statuses: list[int] = []
    channel = grpc.aio.insecure_channel(await server.start())

    async def look() -> None:
        server.set_serving(True)
        statuses.append(await health_of(channel, ""))

    server.on_drain(look)
    await server.drain()
    await channel.close()

    assert statuses == [NOT_SERVING]


async def test_reflection_lists_all_services(server: GrpcServer) -> None:
    async with grpc.aio.insecure_channel(await server.start()) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        responses = [answer async for answer in stub.ServerReflectionInfo(iter([request]))]

    names = {service.name for service in responses[0].list_services_response.service}
    assert names == {
        SERVICE,
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
    }


async def test_probes_are_not_counted(slow: Slow) -> None:
    registry = CollectorRegistry()
    server = make_server(slow, registry=registry)
    async with grpc.aio.insecure_channel(await server.start()) as channel:
        await health_of(channel, "")
    await server.drain()

    counted = [metric for metric in registry.collect() if metric.name.startswith("lingua_grpc_")]
    assert counted
    assert not [sample for metric in counted for sample in metric.samples]


async def test_the_error_of_a_port_in_use_names_the_variable_and_the_address(
    server: GrpcServer, slow: Slow
) -> None:
    address = await server.start()

    with pytest.raises(SettingsError) as caught:
        await make_server(slow, listen=address).start()

    assert f"LINGUA_POOL_LISTEN='{address}': cannot listen there: " in str(caught.value)
    assert "in use" in str(caught.value)


async def test_a_call_in_flight_finishes_while_new_ones_are_refused(
    server: GrpcServer, slow: Slow
) -> None:
    address = await server.start()
    async with grpc.aio.insecure_channel(address) as channel:
        call = channel.unary_unary(f"/{SERVICE}/Wait")(b"")
        await slow.entered.wait()
        drain = asyncio.create_task(server.drain())
        await refused(address)
        assert not drain.done()

        slow.release.set()

        assert await call == b"done"
        await drain


async def refused(address: str) -> None:
    """Returns when a new connection to the address gets no answer."""
    code = None
    while code is not grpc.StatusCode.UNAVAILABLE:
        async with grpc.aio.insecure_channel(address) as channel:
            try:
                await health_of(channel, "")
            except grpc.aio.AioRpcError as error:
                code = error.code()


async def test_what_does_not_finish_within_the_grace_period_is_cut_off(slow: Slow) -> None:
    server = make_server(slow, drain_grace_ms=50)
    async with grpc.aio.insecure_channel(await server.start()) as channel:
        call = channel.unary_unary(f"/{SERVICE}/Wait")(b"")
        await slow.entered.wait()

        await server.drain()

        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        await slow.cancelled.wait()
    assert caught.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)


async def test_drain_steps_run_in_order_while_calls_are_still_taken(server: GrpcServer) -> None:
    steps: list[str] = []
    channel = grpc.aio.insecure_channel(await server.start())

    def step(name: str) -> Callable[[], Any]:
        async def run() -> None:
            await health_of(channel, "")
            steps.append(name)
            if name == "breaks":
                raise ValueError(name)

        return run

    for name in ("first", "breaks", "last"):
        server.on_drain(step(name))
    await asyncio.gather(server.drain(), server.drain())
    await channel.close()

    assert steps == ["first", "breaks", "last"]


async def test_a_drain_step_that_hangs_ends_with_the_grace_period(slow: Slow) -> None:
    server = make_server(slow, drain_grace_ms=50)
    await server.start()
    server.on_drain(asyncio.Event().wait)  # type: ignore[arg-type]

    await server.drain()


async def test_a_server_that_never_started_can_be_drained(server: GrpcServer) -> None:
    await server.drain()


PROCESS = """
import asyncio, sys
import grpc
from lingua_scheduler.services.runtime.rpc.server import GrpcServer
from tests.conftest import Eventually
from tests.security.stranger import PING, Stranger, call, message
from lingua_scheduler.services.runtime.signals import stop_signals

async def main(hang):
    draining = asyncio.Event()

    async def wait(request, context):
        print("entered", flush=True)
        await draining.wait()
        return b"done"

    async def drain():
        print("draining", flush=True)
        if hang:
            await asyncio.Event().wait()
        draining.set()

    handlers = {"Wait": grpc.unary_unary_rpc_method_handler(wait)}
    generic = grpc.method_handlers_generic_handler("test.Frame", handlers)
    server = GrpcServer(
        listen="127.0.0.1:0", variable="LINGUA_POOL_LISTEN", instance_id="pool-0",
        services=[("test.Frame", lambda s: s.add_generic_rpc_handlers([generic]))],
        max_message_bytes=100_000, keepalive_time_ms=20_000, keepalive_timeout_ms=5000,
        drain_grace_ms=60_000,
    )
    server.on_drain(drain)
    with stop_signals() as stopping:
        print(await server.start(), flush=True)
        server.set_serving(True)
        await stopping.wait()
        await server.drain()
    print("drained", flush=True)

asyncio.run(main(hang=sys.argv[1] == "hang"))
"""


async def start_process(mode: str) -> tuple[asyncio.subprocess.Process, Callable[[], Any]]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROCESS, mode, stdout=asyncio.subprocess.PIPE
    )

    async def line() -> str:
        assert process.stdout is not None
        return (await process.stdout.readline()).decode().strip()

    return process, line


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_drains_the_process_which_then_exits_with_0(number: signal.Signals) -> None:
    process, line = await start_process("finish")
    async with grpc.aio.insecure_channel(await line()) as channel:
        call = channel.unary_unary(f"/{SERVICE}/Wait")(b"")
        assert await line() == "entered"

        process.send_signal(number)

        assert await call == b"done"
    assert [await line(), await line()] == ["draining", "drained"]
    assert await process.wait() == 0


async def test_a_second_signal_ends_the_process_at_once() -> None:
    process, line = await start_process("hang")
    await line()
    process.send_signal(signal.SIGTERM)
    assert await line() == "draining"

    process.send_signal(signal.SIGTERM)

    assert await process.wait() == 128 + signal.SIGTERM


async def announced_windows(address: str) -> tuple[int, int]:
    """The flow-control windows that the server announces: of each stream, and of the connection."""
    reader, writer = await asyncio.open_connection(*address.rsplit(":", 1))
    stream, connection = 65_535, 65_535  # by HTTP/2, until a server announces others
    # The preface, settings without any, and a ping.
    hello = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
    writer.write(hello + bytes((0, 0, 8, 6, 0, 0, 0, 0, 0)) + bytes(8))
    try:
        async with asyncio.timeout(30):
            while True:
                head = await reader.readexactly(9)
                payload = await reader.readexactly(int.from_bytes(head[:3], "big"))
                match head[3]:
                    case 4:  # SETTINGS
                        entries = [payload[at : at + 6] for at in range(0, len(payload), 6)]
                        found = {each[1]: int.from_bytes(each[2:], "big") for each in entries}
                        stream = found.get(4, stream)  # INITIAL_WINDOW_SIZE
                    case 8:  # WINDOW_UPDATE
                        connection += int.from_bytes(payload, "big")
                    case 6:  # PING: the answer, after what the server announces by itself
                        return stream, connection
    finally:
        writer.close()


async def windows_of(slow: Slow, **overrides: Any) -> tuple[int, int]:
    server = make_server(slow, max_request_bytes=128 * 1024, **overrides)
    try:
        return await announced_windows(await server.start())
    finally:
        await server.drain()


async def test_the_speakers_of_a_connection_may_send_ahead_for_a_long_round_trip(
    slow: Slow,
) -> None:
    speakers, bytes_per_s, round_trip_s = 256, 16_000 * 2, 0.2
    _, connection = await windows_of(slow, max_streams_per_connection=speakers)
    # gRPC renews a window when half of it is used up.
    assert connection / 2 >= 1.25 * speakers * bytes_per_s * round_trip_s


async def test_a_stream_can_make_a_server_of_small_messages_buffer_only_its_fixed_window(
    slow: Slow,
) -> None:
    found = [
        (await windows_of(slow, max_streams_per_connection=streams))[0]
        for streams in (1, 64, 100_000)
    ]
    # At least the largest message, at most what gRPC grants by default.
    assert found == [128 * 1024, 1024 * 1024, 4 * 1024 * 1024]


async def test_a_server_of_small_messages_does_not_measure_its_connections(
    slow: Slow, eventually: Eventually
) -> None:
    slow.release.set()
    server = make_server(slow, max_request_bytes=128 * 1024)
    try:
        with Stranger(await server.start()) as caller:
            (stream,) = caller.streams(1)
            caller.send(call(stream, f"/{SERVICE}/Wait") + message(stream, bytes(10_000)))
            await eventually(lambda: stream in caller.ended)
            # gRPC measures with pings, the first of which goes with the answer or before it.
            assert caller.frames[PING] == 0
    finally:
        await server.drain()
