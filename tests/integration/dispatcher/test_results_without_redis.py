"""Results that cannot be kept, or that are kept and cannot be read, because Redis is down."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from lingua_scheduler.services.runtime.redis.embedded.server import EmbeddedRedis
from lingua_scheduler.v1 import dispatcher_pb2
from tests.conftest import Eventually
from tests.robustness.network import SWALLOW, Network
from tests.support.scene import together
from tests.support.services import PATIENT, PoolProcess, running_dispatcher

# The follower polls as soon as Redis is back, and orphans are tried again every second.
FOUND_WITHIN_S = 30.0


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[EmbeddedRedis]:
    """A Redis server that keeps its data when it is killed."""
    with EmbeddedRedis(data_dir=tmp_path / "redis") as server:
        yield server


async def test_a_result_whose_home_died_while_redis_was_down_is_kept_when_it_is_back(
    own_redis: EmbeddedRedis, prefix: str
) -> None:
    """As if its gateway were in the same process: nobody else has the audio."""
    settings = {**PATIENT, "redis_timeout_ms": 300, "heartbeat_stale_ms": 60_000}
    with PoolProcess(redis_url=own_redis.url, prefix=prefix, **settings) as pool:
        async with (
            running_dispatcher(pool, own_redis.url, instance_id="owner", **settings) as owner,
            running_dispatcher(pool, own_redis.url, instance_id="home", **settings) as home,
            together([owner, home], pool) as at,
        ):
            node, gateway = await at[0].node("a"), at[1].gateway()
            job = await gateway.submit(at[1].spec())
            assign = await node.take_job()
            await gateway.accepted(job)
            own_redis.kill()
            home.kill()
            await node.result(assign, "hello")
            await owner.logs("orphaned result not kept")
            own_redis.restart()
            following = at[0].gateway()
            await following.attach(job)
            event = await following.expect(job, "delivered", FOUND_WITHIN_S)
            assert event.delivered.result.texts.translated == "hello"
            assert (event.delivered.node_id, event.delivered.attempts) == (node.node_id, 1)


async def test_a_kept_result_that_cannot_be_read_is_delivered_when_it_can_be(
    pool_process: PoolProcess, redis_url: str, eventually: Eventually
) -> None:
    server = redis_url.removeprefix("redis://").partition("/")[0]
    with Network() as network:
        link = network.link("new", "redis", server)
        through = redis_url.replace(server, link.address)
        settings = {**PATIENT, "redis_timeout_ms": 300}
        async with (
            running_dispatcher(pool_process, redis_url, instance_id="old", **PATIENT) as one,
            running_dispatcher(pool_process, through, instance_id="new", **settings) as other,
            together([one, other], pool_process) as (old, new),
        ):
            node, first, second = await old.node(), old.gateway(), new.gateway()
            job = await first.submit(old.spec())
            assign = await node.take_job()
            await first.accepted(job)
            await first.cut()
            await node.result(assign, "hello")
            # It is kept, and the node has forgotten it.
            await node.expect_received(assign)
            network.change(link, SWALLOW)
            await second.submit(new.spec())
            asked = await node.expect_assign()
            assert asked.only_if_known
            await node.reject(asked, dispatcher_pb2.JobReject.CAUSE_NOT_KNOWN)
            unread = "kept result not readable"
            await eventually(lambda: other.log().count(unread) == 2, FOUND_WITHIN_S)
            network.heal()
            event = await second.expect(job, "delivered", FOUND_WITHIN_S)
            assert event.delivered.result.texts.translated == "hello"
