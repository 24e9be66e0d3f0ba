"""TLS and mutual TLS of the gRPC server, on real sockets: who gets in, and new certificates."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from lingua_scheduler.services.runtime.errors import SettingsError
from lingua_scheduler.services.runtime.rpc.channels import Dialer
from lingua_scheduler.services.runtime.rpc.server import GrpcServer
from lingua_scheduler.services.runtime.rpc.tls import ServerTls
from lingua_scheduler.services.runtime.settings.settings import Settings
from tests.security.certificates import EXPIRED, HOUR, Certificates, Pair, server_settings

SERVICE = "test.Echo"


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("ours"))


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """An authority that nobody here trusts."""
    return Certificates(tmp_path_factory.mktemp("foreign"))


async def echo(requests: AsyncIterator[bytes], context: object) -> AsyncIterator[bytes]:
    """Says everything again."""
    async for request in requests:
        yield request


def register(server: grpc.aio.Server) -> None:
    handlers = {"Echo": grpc.stream_stream_rpc_method_handler(echo)}
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE, handlers)])


def server_with(pair: Pair, *, mutual: bool = False, **options: Any) -> GrpcServer:
    tls = ServerTls(Settings(**server_settings(pair, mutual=mutual)))
    return GrpcServer(
        listen="127.0.0.1:0",
        variable="LINGUA_POOL_LISTEN",
        services=[(SERVICE, register)],
        instance_id="pool-0",
        max_message_bytes=100_000,
        keepalive_time_ms=20_000,
        keepalive_timeout_ms=5000,
        **{"drain_grace_ms": 0, "credentials": tls.credentials(), **options},
    )


@contextlib.asynccontextmanager
async def serving(pair: Pair, *, mutual: bool = False, **options: Any) -> AsyncIterator[str]:
    """The address of a server with that certificate."""
    server = server_with(pair, mutual=mutual, **options)
    address = await server.start()
    server.set_serving(True)
    try:
        yield address
    finally:
        await server.drain()


def channel_to(
    address: str, credentials: grpc.ChannelCredentials | None, name: str = ""
) -> grpc.aio.Channel:
    """A connection of its own."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    if name:
        options.append(("grpc.ssl_target_name_override", name))  # type: ignore[arg-type]
    if credentials is None:
        return grpc.aio.insecure_channel(address, options=options)
    return grpc.aio.secure_channel(address, credentials, options=options)


async def check(channel: grpc.aio.Channel) -> bool:
    answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


async def refusal(address: str, credentials: grpc.ChannelCredentials | None, name: str = "") -> str:
    """How gRPC puts it that no connection came about."""
    async with channel_to(address, credentials, name) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await check(channel)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    return str(caught.value.details())


async def test_a_call_with_tls_is_answered(ours: Certificates) -> None:
    async with (
        serving(ours.issue()) as address,
        channel_to(address, ours.credentials()) as channel,
    ):
        assert await check(channel)


async def test_a_server_that_is_not_who_it_should_be_is_refused(
    ours: Certificates, foreign: Certificates
) -> None:
    pair = ours.issue()
    async with serving(pair) as address:
        assert "VERIFY_FAILED" in await refusal(address, foreign.credentials())
        assert "Hostname" in await refusal(address, ours.credentials(), "lingua.example")
    named = ours.issue(hosts=["lingua.internal"])
    async with serving(named) as address:
        assert "Hostname" in await refusal(address, ours.credentials())
        async with channel_to(address, ours.credentials(), "lingua.internal") as channel:
            assert await check(channel)


async def test_a_server_whose_certificate_has_expired_is_refused(ours: Certificates) -> None:
    expired = ours.issue(life=EXPIRED)
    chain = [(expired.key.read_bytes(), expired.cert.read_bytes())]
    # Ours would not even start with it.
    credentials = grpc.ssl_server_credentials(chain)
    async with serving(ours.issue(), credentials=credentials) as address:
        assert "certificate has expired" in await refusal(address, ours.credentials())


async def test_with_mutual_tls_only_who_has_a_certificate_of_the_authority_gets_in(
    ours: Certificates, foreign: Certificates
) -> None:
    client = ours.caller("lingua:client/acme")
    async with serving(ours.issue(), mutual=True) as address:
        async with channel_to(address, client.credentials()) as channel:
            assert await check(channel)
        await refusal(address, ours.credentials())
        await refusal(address, foreign.caller("lingua:client/acme").credentials(ours.ca))
        await refusal(address, ours.caller("lingua:client/acme", EXPIRED).credentials())
        # It lives still.
        async with channel_to(address, client.credentials()) as channel:
            assert await check(channel)


async def test_who_speaks_plain_text_to_it_is_refused_and_the_other_way_round(
    ours: Certificates,
) -> None:
    pair = ours.issue()
    async with serving(pair) as address:
        assert "Socket closed" in await refusal(address, None)
    async with serving(pair, credentials=None) as address:
        assert "WRONG_VERSION_NUMBER" in await refusal(address, ours.credentials())


async def test_services_call_several_addresses_by_one_name(ours: Certificates) -> None:
    pair = ours.issue(hosts=["lingua.internal"])
    settings = {**server_settings(pair), "tls_ca_file": str(pair.ca)}
    dialer = Dialer(Settings(**settings, tls_server_name="lingua.internal"))
    async with serving(pair, mutual=True) as one, serving(pair, mutual=True) as other:
        for address in (one, f"{one},{other}"):
            async with dialer.channel(address) as channel:
                assert await check(channel)


async def test_new_connections_see_a_new_certificate_and_old_streams_go_on(
    ours: Certificates, foreign: Certificates
) -> None:
    pair = ours.issue()
    async with (
        serving(pair) as address,
        channel_to(address, ours.credentials()) as old,
        channel_to(address, foreign.credentials()) as new,
    ):
        stream = old.stream_stream(f"/{SERVICE}/Echo")()
        await stream.write(b"before")
        assert await stream.read() == b"before"
        pair.take(foreign.issue())
        assert await check(new)
        await stream.write(b"after")
        assert await stream.read() == b"after"
        assert "VERIFY_FAILED" in await refusal(address, ours.credentials())
        stream.cancel()


async def test_a_new_authority_of_callers_counts_from_the_next_connection_on(
    ours: Certificates, foreign: Certificates, tmp_path: Path
) -> None:
    pair = ours.issue()
    trusted = tmp_path / "trusted.crt"
    trusted.write_bytes(ours.ca.read_bytes())
    settings = {**server_settings(pair), "tls_client_ca_file": str(trusted)}
    credentials = ServerTls(Settings(**settings)).credentials()
    caller, stranger = (each.caller("lingua:client/acme") for each in (ours, foreign))
    async with serving(pair, credentials=credentials) as address:
        await refusal(address, stranger.credentials(ours.ca))
        trusted.write_bytes(ours.ca.read_bytes() + foreign.ca.read_bytes())
        for each in (caller, stranger):
            async with channel_to(address, each.credentials(ours.ca)) as channel:
                assert await check(channel)
        trusted.write_bytes(foreign.ca.read_bytes())
        await refusal(address, caller.credentials(ours.ca))


async def test_a_broken_new_file_keeps_the_old_certificate_until_it_is_mended(
    ours: Certificates, foreign: Certificates
) -> None:
    pair, new = ours.issue(), foreign.issue(life=2 * HOUR)
    async with serving(pair) as address:
        for broken in (b"", new.cert.read_bytes()[:100], new.cert.read_bytes()):
            pair.cert.write_bytes(broken)
            async with channel_to(address, ours.credentials()) as channel:
                assert await check(channel)
        pair.key.write_bytes(new.key.read_bytes())
        async with channel_to(address, foreign.credentials()) as channel:
            assert await check(channel)


# ---- the listener for probes ----


PROBES = {"probe_listen": "127.0.0.1:0", "probe_variable": "LINGUA_POOL_HEALTH_LISTEN"}


def probe_address(caplog: pytest.LogCaptureFixture) -> str:
    (record,) = [each for each in caplog.records if each.message == "listening for probes"]
    return str(record.__dict__["address"])


async def test_probes_ask_in_plain_text_and_get_health_and_nothing_else(
    ours: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with (
        serving(ours.issue(), mutual=True, **PROBES),
        channel_to(probe_address(caplog), None) as channel,
    ):
        assert await check(channel)
        call = channel.stream_stream(f"/{SERVICE}/Echo")()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call.read()
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_probes_hear_of_the_drain_while_it_lasts_and_then_nobody_is_there(
    ours: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    server = server_with(ours.issue(), drain_grace_ms=20_000, **PROBES)
    heard = []

    async def ask() -> None:
        async with channel_to(probe_address(caplog), None) as channel:
            heard.append(await check(channel))

    server.on_drain(ask)
    await server.start()
    server.set_serving(True)
    await ask()
    await server.drain()
    assert heard == [True, False]
    assert "refused" in await refusal(probe_address(caplog), None)


async def test_an_address_for_probes_that_cannot_be_had_is_told_with_its_variable(
    ours: Certificates,
) -> None:
    async with serving(ours.issue()) as taken:
        server = server_with(ours.issue(), **{**PROBES, "probe_listen": taken})
        with pytest.raises(SettingsError, match=f"LINGUA_POOL_HEALTH_LISTEN='{taken}': cannot"):
            await server.start()
        await server.drain()
