"""What a client says it has seen is checked against the record of its session."""

import asyncio
import contextlib
import itertools
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from lingua_scheduler.v1 import session_pb2
from tests.support.audio import speech
from tests.support.raw_client import RawClient, new_session, raw_client, working
from tests.support.scene import Scene, scene
from tests.support.services import DispatcherProcess, GatewayProcess, PoolProcess

# What an honest client waits at most while a hostile one is at work; without the check it was 45 s.
BESIDE_S = 10.0


@pytest.fixture(scope="module")
def processes(redis_url: str) -> Iterator[tuple[PoolProcess, DispatcherProcess, GatewayProcess]]:
    """One of each service."""
    common: dict[str, Any] = {"redis_timeout_ms": 4000}
    prefix = f"test:{uuid.uuid4().hex[:8]}"
    with (
        PoolProcess(redis_url=redis_url, prefix=prefix, **common) as pool,
        DispatcherProcess(pool=pool, redis_url=redis_url) as dispatcher,
        GatewayProcess(pool=pool, redis_url=redis_url, dispatchers=dispatcher.address) as gateway,
    ):
        yield pool, dispatcher, gateway


@pytest.fixture
def gateway(processes: tuple[PoolProcess, DispatcherProcess, GatewayProcess]) -> GatewayProcess:
    return processes[2]


@pytest.fixture
async def here(
    processes: tuple[PoolProcess, DispatcherProcess, GatewayProcess],
) -> AsyncIterator[Scene]:
    """Nodes that do every job at once."""
    async with scene(processes[1], processes[0]) as made, working(await made.node(slots=8)):
        yield made


@contextlib.asynccontextmanager
async def honest_talk(gateway: GatewayProcess, here: Scene) -> AsyncIterator[None]:
    """A client beside, whose every utterance has to be answered soon."""

    async def talk() -> None:
        async with raw_client(gateway.address) as client:
            await client.open(new_session(here.src, here.tgt))
            for index in itertools.count():
                await client.send(speech(index % 100), final=True)
                await client.result(index, within=BESIDE_S)
                await client.say(results_seen=index + 1)

    talking = asyncio.create_task(talk())
    try:
        yield
        assert not talking.done(), talking
    finally:
        talking.cancel()
        await asyncio.gather(talking, return_exceptions=True)


async def said(client: RawClient, opened: session_pb2.Opened, seen: int, next_seq: int) -> Any:
    """What comes of a resume that claims to have seen so much."""
    resume = session_pb2.ResumeSession(
        session_id=opened.session_id,
        resume_token=opened.resume_token,
        results_seen=seen,
        next_seq=next_seq,
    )
    await client.say(open=session_pb2.Open(resume=resume))
    return await client.refused("INVALID_MESSAGE")


async def spoken(gateway: GatewayProcess, here: Scene, count: int) -> session_pb2.Opened:
    """A session whose client has seen so many results, said so, and gone."""
    async with raw_client(gateway.address) as client:
        opened = await client.open(new_session(here.src, here.tgt))
        for index in range(count):
            await client.send(speech(index), final=True)
            await client.result(index)
        await client.say(results_seen=count)
        # Written down with the next cut.
        await client.send(speech(count), final=True)
        await client.result(count)
    return opened


@pytest.mark.parametrize("claimed", [2_000_000_000, 4_000_000_000, 2**32 - 1])
async def test_a_client_that_has_seen_what_never_was_is_refused_and_stops_nobody(
    gateway: GatewayProcess, here: Scene, claimed: int
) -> None:
    async with honest_talk(gateway, here):
        opened = await spoken(gateway, here, 2)
        async with raw_client(gateway.address) as liar:
            error = await said(liar, opened, claimed, 3)
            fields = [each.field for each in error.field_violations]
            assert fields == ["open.resume.results_seen"]
        # The session is as it was.
        async with raw_client(gateway.address) as again:
            await again.resume(opened, results_seen=2, next_seq=3)
            await again.send(speech(7), final=True)
            await again.result(3)
            assert again.outcomes() == [(2, "2"), (3, "7")]


async def test_a_client_cannot_unsee_results(gateway: GatewayProcess, here: Scene) -> None:
    opened = await spoken(gateway, here, 2)
    async with raw_client(gateway.address) as liar:
        error = await said(liar, opened, 1, 3)
        assert [each.field for each in error.field_violations] == ["open.resume.results_seen"]
        assert "1 must be from 2" in error.message


async def test_claims_that_rise_step_by_step_cost_no_more_than_the_steps(
    gateway: GatewayProcess, here: Scene
) -> None:
    """A little more than was recorded may be true, since Redis may have been away."""
    async with honest_talk(gateway, here):
        opened = await spoken(gateway, here, 1)
        for step, claimed in enumerate((150, 300)):
            async with raw_client(gateway.address) as liar:
                await liar.resume(opened, results_seen=claimed, next_seq=2 + step)
                await liar.send(speech(1), final=True)
                await liar.result(claimed)
        async with raw_client(gateway.address) as liar:
            await said(liar, opened, 0, 0)
