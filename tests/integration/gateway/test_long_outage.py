"""An outage of Redis beyond the deadline of utterances: they are translated afterwards."""

import asyncio
from collections.abc import Iterator

import pytest

from lingua_scheduler.services.runtime.redis.embedded.server import EmbeddedRedis
from tests.support.audio import speech
from tests.support.raw_client import new_session, raw_client, working
from tests.support.rpc_errors import reason
from tests.support.scene import scene
from tests.support.services import DispatcherProcess, GatewayProcess, PoolProcess, all_running

DOWN = "SCHEDULER_DEPENDENCY_DOWN"
DEADLINE_S = 4.0
OUTAGE_S = 2 * DEADLINE_S


@pytest.fixture(scope="module")
def gateways(
    frail_redis: EmbeddedRedis, frail_pool: PoolProcess, frail_dispatcher: DispatcherProcess
) -> Iterator[tuple[GatewayProcess, GatewayProcess]]:
    """A gateway that waits for Redis, and one that hardly does."""
    made = [
        GatewayProcess(
            pool=frail_pool,
            redis_url=frail_redis.url,
            dispatchers=frail_dispatcher.address,
            hangover_manual_ms=0,
            job_timeout_ms=int(DEADLINE_S * 500),
            result_deadline_ms=int(DEADLINE_S * 1000),
            redis_timeout_ms=1000,
            redis_outage_max_ms=bound_ms,
        )
        for bound_ms in (300_000, 500)
    ]
    with all_running(made):
        yield made[0], made[1]


@pytest.mark.parametrize("frozen", [True, False])
async def test_speech_of_a_long_outage_goes_through_within_the_bound_and_is_named_beyond_it(
    frail_pool: PoolProcess,
    frail_dispatcher: DispatcherProcess,
    gateways: tuple[GatewayProcess, GatewayProcess],
    frail_redis: EmbeddedRedis,
    frozen: bool,
) -> None:
    patient, hasty = gateways
    async with (
        scene(frail_dispatcher, frail_pool) as here,
        raw_client(patient.address) as client,
        raw_client(hasty.address) as other,
    ):
        node = await here.node(slots=3)
        async with working(node):
            for each in (client, other):
                await each.open(new_session(here.src, here.tgt))
                await each.send(speech(0), final=True)
                await each.result(0)
            (frail_redis.pause if frozen else frail_redis.kill)()
            try:
                for mark in (1, 2):
                    await client.send(speech(mark), final=True)
                await other.send(speech(1), final=True)
                await asyncio.sleep(OUTAGE_S)
                why = await other.missing(1)
                assert reason(why) == DOWN
                assert "without Redis" in why.message
                assert client.of("missing") == []
            finally:
                (frail_redis.resume if frozen else frail_redis.restart)()
            await client.send(speech(3), final=True)
            await client.result(3, within=30)
            assert client.outcomes() == [(0, "0"), (1, "1"), (2, "2"), (3, "3")]
            await other.send(speech(2), final=True)
            await other.result(2, within=30)
