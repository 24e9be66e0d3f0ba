"""The gateway keeps nothing of a WebSocket that is over, even if no garbage is collected."""

from collections.abc import Iterator

import aiohttp
import pytest

from tests.support.audio import speech
from tests.support.live_objects import CountedProcess, counting
from tests.support.raw_client import new_session
from tests.support.raw_http import TEXT, frame, handshake, raw_connection, raw_socket
from tests.support.services import DispatcherProcess, GatewayProcess, PoolProcess
from tests.support.web_client import web_client

TIMES = 100


@pytest.fixture(scope="module")
def counted(
    patient_process: DispatcherProcess, pool_process: PoolProcess, redis_url: str
) -> Iterator[CountedProcess]:
    """A gateway without a garbage collector."""
    with counting(
        GatewayProcess,
        pool=pool_process,
        redis_url=redis_url,
        dispatchers=patient_process.address,
        web_connections_per_address=0,
        # What is left of a session that can be resumed is in Redis.
    ) as made:
        yield made


def web_of(counted: CountedProcess) -> str:
    assert isinstance(counted.service, GatewayProcess)
    return counted.service.web_address


@pytest.mark.parametrize("how", ["closes", "leaves", "breaks off", "sends a bad frame"])
async def test_nothing_is_left_of_a_session(counted: CountedProcess, how: str) -> None:
    async def once() -> None:
        async with web_client(web_of(counted)) as web:
            await web.open(new_session("qaa"))
            await web.chunk(0, speech(1))
            if how == "closes":
                await web.say(resultsSeen=0, close={})
                return
            if how == "breaks off":
                web.cut()
            elif how == "sends a bad frame":
                await web.socket.send_bytes(b"?")
                assert await web.closed() == 4400

    await counted.keeps_nothing_of(TIMES, once, at_once=10)


async def test_nothing_is_left_of_requests_and_refusals(counted: CountedProcess) -> None:
    address = web_of(counted)

    async def once() -> None:
        async with aiohttp.ClientSession() as http, http.get(f"http://{address}/nowhere"):
            pass
        async with raw_connection(address) as peer:
            await peer.send(handshake(address, Origin="http://evil.example"))
            assert await peer.status() == 403
        async with raw_connection(address) as peer:
            await peer.send(handshake(address))
        async with raw_socket(address) as peer:
            await peer.send(frame(TEXT, b"{"))

    await counted.keeps_nothing_of(TIMES, once, at_once=10)
