"""Jobs that wait for room take a bounded part of a dispatcher's memory."""

import uuid
from collections.abc import AsyncIterator, Iterator

import pytest

from lingua_scheduler.v1 import dispatcher_pb2
from tests.support.raw_gateway import id_of
from tests.support.rpc_errors import reason
from tests.support.scene import Scene, scene
from tests.support.services import PoolProcess, running_dispatcher

AUDIO = bytes(50_000)


@pytest.fixture(scope="module")
def pool(redis_url: str) -> Iterator[PoolProcess]:
    prefix = f"test:{uuid.uuid4().hex[:8]}"
    with PoolProcess(redis_url=redis_url, prefix=prefix, redis_timeout_ms=4000) as process:
        yield process


@pytest.fixture
async def here(pool: PoolProcess, redis_url: str) -> AsyncIterator[Scene]:
    """A dispatcher where three such jobs may wait, one of each tenant."""
    settings = {"waiting_bytes_max": 160_000, "queue_wait_ms": 60_000, "ack_timeout_ms": 60_000}
    async with (
        running_dispatcher(pool, redis_url, None, reservation_ttl_ms=90_000, **settings) as process,
        scene(process, pool) as made,
    ):
        yield made


def job_of(here: Scene, tenant: str, index: int) -> dispatcher_pb2.JobSpec:
    spec = here.spec(index, audio=AUDIO)
    spec.tenant = tenant
    return spec


async def test_audio_that_waits_is_bounded_in_all_and_by_tenant(here: Scene) -> None:
    node, gateway = await here.node(), here.gateway()
    running = await gateway.submit(here.spec(0))
    assign = await node.take_job()
    await gateway.accepted(running)

    waiting = [job_of(here, tenant, 1) for tenant in "abc"]
    for spec in waiting:
        await gateway.submit(spec)
    # The pool may answer a later job first, which would then take the place of one of these.
    await here.dispatcher.reaches(3, "lingua_dispatcher_waiting_jobs")
    # One tenant has its share, and then all have theirs.
    for spec in (job_of(here, "a", 2), job_of(here, "d", 1)):
        error = await gateway.failed(await gateway.submit(spec))
        assert reason(error) == "ALL_CANDIDATES_FULL_OR_FAILED"
        assert error.retry_after_ms > 0

    # Those that wait are served in their order, and leave room for others.
    await node.result(assign)
    for spec in waiting:
        assign = await node.take_job()
        assert assign.attempt.job_id == id_of(spec)
        await node.result(assign)
        await gateway.delivered(id_of(spec))
    last = job_of(here, "d", 2)
    await gateway.submit(last)
    assert (await node.take_job()).attempt.job_id == id_of(last)
