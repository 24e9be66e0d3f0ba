"""What a peer without a token can use of a server over one connection."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from lingua_scheduler.services.runtime.rpc import interceptors as grpc_interceptors
from lingua_scheduler.services.runtime.rpc.peer_limits import MAX_OPEN_CALLS
from lingua_scheduler.services.runtime.rpc.server import GrpcServer
from lingua_scheduler.v1 import session_pb2, session_pb2_grpc
from tests.conftest import Eventually
from tests.security.conftest import Services
from tests.security.issuer import Issuer, bearer
from tests.security.stranger import (
    MAX_CONCURRENT_STREAMS,
    Stranger,
    call,
    message,
    message_start,
    reset,
)
from tests.support.raw_client import new_session, raw_client
from tests.support.services import GatewayProcess

CHECK, WATCH = "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"
LIST = "/lingua_scheduler.v1.SessionGateway/ListSessions"

# Without limits each of these took 150 MB and more of the gateway, or kept it from others.
ATTACKS: dict[str, tuple[Callable[[int], bytes], int]] = {
    "unfinished requests of a method that needs a token": (
        lambda s: call(s, LIST) + message_start(s, 4_000_000, 60_000),
        8_000,
    ),
    "unfinished requests of an open method": (
        lambda s: call(s, CHECK) + message_start(s, 120_000, 60_000),
        8_000,
    ),
    "calls without a request": (lambda s: call(s, LIST), 30_000),
    "calls of an open method without a request": (lambda s: call(s, CHECK), 30_000),
    "health watches": (lambda s: call(s, WATCH) + message(s, b""), 30_000),
    "calls that are reset at once": (lambda s: call(s, LIST) + reset(s), 40_000),
    "refused calls": (lambda s: call(s, LIST) + message(s, b""), 30_000),
}
_ROUND = 100
# Mostly what one connection may have in flight, and what the allocator does not give back.
_MEMORY_BYTES = 256 * 2**20
# Processor time of the gateway until an honest call is answered, which no other process on the
# machine changes; without an attack it is milliseconds.
_ANSWER_S = 10.0


@pytest.mark.parametrize("name", list(ATTACKS))
@pytest.mark.parametrize("obeys", [True, False], ids=["", "settings ignored"])
async def test_a_stranger_takes_little_memory_and_keeps_nobody_from_being_served(
    services: Services, issuer: Issuer, name: str, obeys: bool
) -> None:
    frames, calls = ATTACKS[name]
    gateway = services.gateway
    before = gateway.memory_bytes()
    attack = asyncio.create_task(_attack(gateway, issuer, frames, calls, obeys))
    most, slowest, answers = before, 0.0, 0
    async with _lister(gateway.address, issuer) as list_sessions:
        while not attack.done() or answers == 0:
            began = gateway.cpu_seconds()
            await list_sessions()
            slowest = max(slowest, gateway.cpu_seconds() - began)
            answers += 1
            most = max(most, gateway.memory_bytes())
            await asyncio.sleep(0.01)
    await attack
    assert most - before < _MEMORY_BYTES
    assert slowest < _ANSWER_S


async def _attack(
    gateway: GatewayProcess,
    issuer: Issuer,
    frames: Callable[[int], bytes],
    calls: int,
    obeys: bool,
) -> None:
    """Makes so many calls, on one connection after the other as the server closes them.

    The server has ended the calls of a connection before the next one begins, and before this
    returns. While more than 1000 calls wait to be handled, gRPC drops some at random, honest ones
    too (grpc.server.max_pending_requests): other tests must not meet what is left of an attack.
    """
    sent = 0
    while sent < calls:
        sent += await asyncio.to_thread(_attack_once, gateway.address, frames, calls - sent, obeys)
        await _worked_off(gateway, issuer)


def _attack_once(address: str, frames: Callable[[int], bytes], calls: int, obeys: bool) -> int:
    """Makes calls until the server closes the connection; returns how many."""
    with Stranger(address, obeys=obeys) as stranger:
        for sent in range(0, calls, _ROUND):
            if not stranger.send(b"".join(frames(each) for each in stranger.streams(_ROUND))):
                return sent + _ROUND
    return calls


@contextlib.asynccontextmanager
async def _lister(address: str, issuer: Issuer) -> AsyncIterator[Callable[[], Any]]:
    """An honest client's call, which has to succeed."""
    metadata = issuer.metadata("client", tenant="honest")
    options = (("grpc.use_local_subchannel_pool", 1),)
    async with grpc.aio.insecure_channel(address, options=options) as channel:
        stub: Any = session_pb2_grpc.SessionGatewayStub(channel)
        request = session_pb2.ListSessionsRequest()
        yield lambda: stub.ListSessions(request, metadata=metadata, timeout=3 * _ANSWER_S)


async def _worked_off(gateway: GatewayProcess, issuer: Issuer) -> None:
    """Returns when the gateway has ended all calls of connections that are closed."""

    async def failed_calls() -> float:
        samples = await gateway.samples("lingua_grpc_server_handled_total")
        return sum(count for labels, count in samples if 'code="OK"' not in labels)

    deadline = time.monotonic() + 6 * _ANSWER_S
    async with _lister(gateway.address, issuer) as list_sessions:
        before = -1.0
        while (now := await failed_calls()) != before:
            assert time.monotonic() < deadline, "the gateway is still busy with the attack"
            # Calls are handled in order: an answer follows on all that came before.
            try:
                await list_sessions()
                before = now
            except grpc.aio.AioRpcError:
                before = -1.0  # dropped


async def test_refused_calls_do_not_fill_the_log(services: Services, issuer: Issuer) -> None:
    frames, _ = ATTACKS["refused calls"]
    before = services.gateway.log().count("call refused")
    refused = await services.gateway.metric("lingua_auth_refused_total")
    began = time.monotonic()
    lines = 0
    # The lines of this second may have gone to another test.
    while lines == 0 or await services.gateway.metric("lingua_auth_refused_total") < refused + 1000:
        await _attack(services.gateway, issuer, frames, 500, True)
        assert time.monotonic() - began < 60
        lines = services.gateway.log().count("call refused") - before
    assert lines <= 50 * (time.monotonic() - began + 2)


@pytest.mark.parametrize("service", ["pool", "dispatcher", "gateway"])
async def test_a_stranger_is_refused_before_it_sends_a_request(
    services: Services, service: str, eventually: Eventually
) -> None:
    methods = {
        "pool": "/lingua_scheduler.v1.PoolService/ListNodes",
        "dispatcher": "/lingua_scheduler.v1.Dispatcher/GetJob",
        "gateway": LIST,
    }
    with Stranger(getattr(services, service).address) as stranger:
        (stream,) = stranger.streams(1)
        stranger.send(call(stream, methods[service]))
        await eventually(lambda: stream in stranger.ended)


@pytest.mark.parametrize("path", [LIST, CHECK, WATCH])
async def test_a_call_that_ends_without_a_request_is_answered(
    services: Services, issuer: Issuer, path: str, eventually: Eventually
) -> None:
    metadata = issuer.metadata("client", tenant="honest")
    with Stranger(services.gateway.address) as stranger:
        (stream,) = stranger.streams(1)
        stranger.send(call(stream, path, *metadata, ends=True))
        await eventually(lambda: stream in stranger.ended)


@pytest.mark.parametrize("service", ["pool", "dispatcher", "gateway"])
async def test_every_port_limits_the_calls_of_a_connection(
    services: Services, service: str, eventually: Eventually
) -> None:
    with Stranger(getattr(services, service).address) as stranger:
        await eventually(lambda: MAX_CONCURRENT_STREAMS in stranger.settings)
        assert stranger.settings[MAX_CONCURRENT_STREAMS] == 256


async def test_a_gateway_takes_no_larger_messages_than_clients_send(
    services: Services, issuer: Issuer
) -> None:
    metadata = bearer(issuer.token("client", tenant="large"))
    features = {f"{n:03}" + "e" * 253: "e" * 256 for n in range(32)}  # 16 KiB, the limit
    largest = new_session("qbz", tenant="")
    largest.options.features.update(features)
    async with raw_client(services.gateway.address, metadata) as client:
        await client.open(largest)
        await client.send(bytes(64 * 1024))
        await client.say(audio=session_pb2.AudioChunk(seq=1, data=bytes(200_000)))
        assert await client.status() is grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.fixture
async def server() -> AsyncIterator[str]:
    """The address of a server with nothing but a health service, also on a port for probes."""
    server = GrpcServer(
        listen="127.0.0.1:0",
        variable="LINGUA_POOL_LISTEN",
        services=[],
        instance_id="pool-0",
        max_message_bytes=100_000,
        keepalive_time_ms=20_000,
        keepalive_timeout_ms=5000,
        drain_grace_ms=0,
    )
    yield await server.start()
    await server.drain()


async def test_a_request_that_does_not_arrive_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, server: str, eventually: Eventually
) -> None:
    monkeypatch.setattr(grpc_interceptors, "OPEN_REQUEST_WITHIN_S", 0.1)
    with Stranger(server) as stranger:
        (stream,) = stranger.streams(1)
        stranger.send(call(stream, CHECK) + message_start(stream, 50_000, 10_000))
        await eventually(lambda: stream in stranger.ended)


async def test_a_connection_has_few_calls_without_a_token_and_others_are_served(
    server: str, eventually: Eventually
) -> None:
    with Stranger(server) as stranger:
        streams = stranger.streams(MAX_OPEN_CALLS + 5)
        stranger.send(b"".join(call(each, WATCH) + message(each, b"") for each in streams))
        await eventually(lambda: len(stranger.ended) == 5)
        async with grpc.aio.insecure_channel(server) as channel:
            await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
        assert stranger.ended == set(streams[-5:])
        stranger.send(b"".join(map(reset, streams)))
        (again,) = stranger.streams(1)
        stranger.send(call(again, CHECK) + message(again, b""))
        await eventually(lambda: again in stranger.ended)
