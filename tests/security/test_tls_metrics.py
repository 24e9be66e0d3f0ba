"""/metrics with TLS: by the files of the server, read again when they change."""

import asyncio
import contextlib
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Counter

from lingua_scheduler.services.runtime.addresses import split_address
from lingua_scheduler.services.runtime.rpc.tls import ServerTls
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.services.runtime.telemetry.metrics import MetricsServer
from tests.security.certificates import Certificates, Pair, server_settings

# How a client may see that the server has ended a handshake; it depends on who is faster.
ENDED = r"required|reset|closed|aborted|EOF|pipe"


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("ours"))


@contextlib.asynccontextmanager
async def exposed(pair: Pair, *, mutual: bool = False) -> AsyncIterator[str]:
    """The address of one metric."""
    registry = CollectorRegistry()
    Counter("lingua_things", "Things.", registry=registry).inc(3)
    tls = ServerTls(Settings(**server_settings(pair, mutual=mutual)))
    server = MetricsServer(
        listen="127.0.0.1:0", registry=registry, variable="LINGUA_X", tls=tls.context
    )
    try:
        yield await server.start()
    finally:
        await server.stop()


def trusting(ca: Path, shown: Pair | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=ca)
    if shown is not None:
        context.load_cert_chain(shown.cert, shown.key)
    return context


async def fetch(address: str, context: ssl.SSLContext) -> str:
    def get() -> str:
        url = f"https://{address}/metrics"
        with urllib.request.urlopen(url, timeout=10, context=context) as response:
            return str(response.read().decode())

    return await asyncio.to_thread(get)


async def test_metrics_are_served_with_tls_and_not_without(ours: Certificates) -> None:
    async with exposed(ours.issue()) as address:
        assert "lingua_things_total 3.0" in await fetch(address, trusting(ours.ca))
        with pytest.raises(OSError, match=ENDED):
            await asyncio.to_thread(urllib.request.urlopen, f"http://{address}/metrics", timeout=10)


async def test_with_mutual_tls_a_scraper_needs_a_certificate(ours: Certificates) -> None:
    async with exposed(ours.issue(), mutual=True) as address:
        scraper = ours.caller("lingua:operator/prometheus")
        assert "lingua_things_total" in await fetch(address, trusting(ours.ca, scraper))
        with pytest.raises(OSError, match=ENDED):
            await fetch(address, trusting(ours.ca))


async def test_a_new_certificate_is_shown_and_a_broken_one_is_not(
    ours: Certificates, tmp_path: Path
) -> None:
    pair, others = ours.issue(), Certificates(tmp_path)
    new = others.issue()
    async with exposed(pair) as address:
        await fetch(address, trusting(ours.ca))
        pair.cert.write_bytes(new.cert.read_bytes())
        await fetch(address, trusting(ours.ca))
        pair.key.write_bytes(new.key.read_bytes())
        await fetch(address, trusting(others.ca))
        with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
            await fetch(address, trusting(ours.ca))


async def test_a_peer_that_says_nothing_keeps_no_other_waiting(ours: Certificates) -> None:
    async with exposed(ours.issue()) as address:
        with socket.create_connection(split_address(address)):
            assert "lingua_things_total" in await fetch(address, trusting(ours.ca))
