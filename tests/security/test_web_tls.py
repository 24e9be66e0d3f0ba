"""The web entry with TLS: certificates that change while it runs, and callers' certificates."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.security.certificates import Certificates, Pair, server_settings
from tests.support.process import SOON_S
from tests.support.raw_client import new_session
from tests.support.raw_http import RawConnection, raw_connection, request
from tests.support.services import GatewayProcess, PoolProcess, running
from tests.support.web_client import all_left, web_client


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    """An authority of one test."""
    return Certificates(tmp_path)


def trusting(certificates: Certificates, shown: Pair | None = None) -> ssl.SSLContext:
    """TLS of a caller, which may show a certificate of its own."""
    context = ssl.create_default_context(cafile=str(certificates.ca))
    if shown is not None:
        context.load_cert_chain(shown.cert, shown.key)
    return context


def gateway_of(redis_url: str, prefix: str, **settings: Any) -> GatewayProcess:
    """A gateway alone: sessions open without a dispatcher."""
    pool = PoolProcess(redis_url=redis_url, prefix=prefix)
    return GatewayProcess(pool=pool, redis_url=redis_url, dispatchers="127.0.0.1:1", **settings)


async def serial(gateway: GatewayProcess, context: ssl.SSLContext) -> str:
    """The serial number of the certificate that the web entry shows."""
    async with raw_connection(gateway.web_address, context) as connection:
        found = connection.writer.get_extra_info("peercert")
        return str(found["serialNumber"])


@pytest.fixture
async def served(
    redis_url: str, prefix: str, certificates: Certificates
) -> AsyncIterator[tuple[GatewayProcess, Pair]]:
    """A gateway with TLS, and its certificate."""
    pair = certificates.issue()
    gateway = gateway_of(redis_url, prefix, **server_settings(pair))
    async with running(gateway):
        yield gateway, pair
    assert not gateway.faults(), gateway.log()


async def test_sessions_and_requests_are_encrypted(
    served: tuple[GatewayProcess, Pair], certificates: Certificates
) -> None:
    gateway, _ = served
    context = trusting(certificates)
    async with web_client(gateway.web_address, ssl=context) as client:
        await client.open(new_session("qaa"))
    url = f"https://{gateway.web_address}/healthz"
    async with aiohttp.ClientSession() as http, http.get(url, ssl=context) as response:
        assert response.status == 200


async def test_plain_text_is_not_answered(served: tuple[GatewayProcess, Pair]) -> None:
    gateway, _ = served
    async with raw_connection(gateway.web_address) as connection:
        await connection.send(request(gateway.web_address, "/healthz"))
        assert await connection.status(within=SOON_S) == 0


async def test_peers_without_a_handshake_count_and_are_disconnected(
    redis_url: str, prefix: str, certificates: Certificates
) -> None:
    gateway = gateway_of(
        redis_url,
        prefix,
        web_connections_per_address=3,
        limits={"runtime.web.listener._HANDSHAKE_WITHIN_S": 3.0},
        **server_settings(certificates.issue()),
    )
    context = trusting(certificates)
    async with running(gateway), contextlib.AsyncExitStack() as stack:
        silent = [
            await stack.enter_async_context(raw_connection(gateway.web_address)) for _ in range(20)
        ]
        # Twice as many as may be served are left; the others are cut off at once.
        await ended(silent, at_least=14)
        assert await gateway.metric("lingua_gateway_web_connections") <= 6
        # Another address is served meanwhile.
        async with raw_connection(gateway.web_address, context, "127.0.0.2") as other:
            await other.send(request(gateway.web_address, "/healthz"))
            assert await other.status() == 200
        await ended(silent, at_least=20)
        await all_left(gateway)
    assert not gateway.faults(), gateway.log()


async def ended(peers: list[RawConnection], at_least: int) -> None:
    """Waits until so many of the peers were disconnected."""
    waits = [asyncio.ensure_future(each.ended()) for each in peers]
    for number, wait in enumerate(asyncio.as_completed(waits), 1):
        await wait
        if number == at_least:
            break
    for each in waits:
        each.cancel()
    await asyncio.gather(*waits, return_exceptions=True)


async def test_a_new_certificate_is_used_from_the_next_connection_on(
    served: tuple[GatewayProcess, Pair], certificates: Certificates
) -> None:
    gateway, pair = served
    context = trusting(certificates)
    first = await serial(gateway, context)
    async with web_client(gateway.web_address, ssl=context) as client:
        await client.open(new_session("qaa"))
        pair.take(certificates.issue())
        second = await serial(gateway, context)
        assert second != first
        pair.take(certificates.issue())
        assert await serial(gateway, context) not in (first, second)
        # Connections that are open go on.
        await client.say(close={})
        assert await client.closed() == 1000


async def test_a_certificate_tells_who_calls(
    redis_url: str, prefix: str, certificates: Certificates
) -> None:
    gateway = gateway_of(
        redis_url, prefix, auth="on", **server_settings(certificates.issue(), mutual=True)
    )
    async with running(gateway):
        app = trusting(certificates, certificates.caller("lingua:client/acme"))
        async with web_client(gateway.web_address, ssl=app) as client:
            await client.open(new_session("qaa", tenant="acme"))
        node = trusting(certificates, certificates.caller("lingua:node/n1"))
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            async with web_client(gateway.web_address, ssl=node):
                pass
        assert refused.value.status == 403
        with pytest.raises(aiohttp.ClientError):
            async with web_client(gateway.web_address, ssl=trusting(certificates)):
                pass
    assert not gateway.faults(), gateway.log()
