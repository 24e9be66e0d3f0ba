"""The web entry while gateways start, drain and end, and while Redis is away."""

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from lingua_scheduler.services.runtime.redis.embedded.server import EmbeddedRedis
from tests.support.audio import speech
from tests.support.process import SOON_S
from tests.support.raw_client import new_session, working
from tests.support.scene import Scene
from tests.support.services import DispatcherProcess, GatewayProcess, PoolProcess, running
from tests.support.web_client import WebClient, web_client


def fetch(address: str, path: str) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=SOON_S) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


async def health(gateway: GatewayProcess) -> int:
    return (await asyncio.to_thread(fetch, gateway.web_address, "/healthz"))[0]


@pytest.fixture
async def two(
    patient_process: DispatcherProcess, pool_process: PoolProcess, redis_url: str
) -> AsyncIterator[list[GatewayProcess]]:
    """Two gateways of one test, which may end them."""
    gateways = [
        GatewayProcess(
            pool=pool_process,
            redis_url=redis_url,
            dispatchers=patient_process.address,
            hangover_manual_ms=50,
            drain_grace_ms=3000,
        )
        for _ in range(2)
    ]
    async with running(*gateways):
        yield gateways
    for each in gateways:
        assert not each.faults(), each.log()


async def continued(web: WebClient, opened: dict[str, Any]) -> None:
    """Resumes with one utterance under way, and speaks another one."""
    again = await web.resume(opened)
    for seq in range(int(again.get("nextSeq", 0)), 2):
        await web.chunk(seq, speech(10 + seq), final=True)
    texts = [(await web.result(index))["texts"]["translated"] for index in (0, 1)]
    assert texts == ["10", "11"]


async def test_a_session_goes_on_at_another_gateway_if_its_own_is_killed(
    two: list[GatewayProcess], patient: Scene
) -> None:
    node = await patient.node()
    async with web_client(two[0].web_address) as first:
        opened = await first.open(new_session(patient.src, patient.tgt))
        await first.chunk(0, speech(10), final=True)
        await first.event("utterance", lambda each: "finalized" in each)
        await asyncio.to_thread(two[0].kill)
        assert await first.closed() == 1006
    async with working(node), web_client(two[1].web_address) as second:
        await continued(second, opened)


async def test_a_gateway_that_drains_sends_its_clients_elsewhere(
    two: list[GatewayProcess], patient: Scene
) -> None:
    node, draining = await patient.node(), two[0]
    async with web_client(draining.web_address) as first, web_client(two[0].web_address) as stays:
        opened = await first.open(new_session(patient.src, patient.tgt))
        await stays.open(new_session(patient.src, patient.tgt))
        await first.chunk(0, speech(10), final=True)
        await first.event("utterance", lambda each: "finalized" in each)
        draining.terminate()
        away = await first.event("goAway")
        assert "draining" in away["why"]
        assert await health(draining) == 503
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            async with web_client(draining.web_address):
                pass
        assert refused.value.status == 503
        # It is served until it leaves.
        await first.say(resultsSeen=0)
        await first.leave()
        async with working(node), web_client(two[1].web_address) as second:
            await continued(second, opened)
        # Who does not leave is sent away when the grace period ends.
        assert await stays.closed() == 1001


async def test_without_redis_nothing_is_upgraded_and_sessions_wait(
    own_redis: EmbeddedRedis, prefix: str, patient_process: DispatcherProcess
) -> None:
    gateway = GatewayProcess(
        # Not started: only its prefix is used.
        pool=PoolProcess(redis_url=own_redis.url, prefix=prefix),
        redis_url=own_redis.url,
        dispatchers=patient_process.address,
        redis_timeout_ms=500,
    )
    async with running(gateway):
        assert await health(gateway) == 200
        own_redis.kill()
        async with asyncio.timeout(SOON_S):
            while await health(gateway) != 503:
                pass
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            async with web_client(gateway.web_address):
                pass
        assert refused.value.status == 503
        assert refused.value.headers is not None
        assert refused.value.headers["Retry-After"] == "1"
        status, body = await asyncio.to_thread(fetch, gateway.web_address, "/v1/languages")
        assert (status, body["reason"]) == (503, "SCHEDULER_DEPENDENCY_DOWN")
        await asyncio.to_thread(own_redis.restart)
        async with asyncio.timeout(SOON_S):
            while await health(gateway) != 200:
                pass
        async with web_client(gateway.web_address) as client:
            await client.open(new_session("qaa", "es"))
