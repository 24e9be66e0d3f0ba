"""A process stands still while people speak: the others leave it, and everybody is served again.

A stopped process keeps its connections open, and its kernel goes on taking what is sent to it. So
nothing breaks, and only its silence tells. All other times are so long that they do not help:
before peers were watched, a frozen gateway was left after 15 s, and a frozen dispatcher after
`node_reconnect_grace_ms`.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lingua_scheduler.services.runtime.redis.embedded.server import EmbeddedRedis
from tests.faults.crowd import PEOPLE, SHORT, talking, victim
from tests.support.scheduler import Scheduler
from tests.support.services import addresses

pytestmark = pytest.mark.long

WORK_MS = 300
# About 3 s to find it, two sentences, and what a busy machine adds.
SERVED_WITHIN_S = 12.0
SETTINGS = {
    "node_heartbeat_ms": 10_000,
    "heartbeat_stale_ms": 30_000,
    "node_reconnect_grace_ms": 30_000,
    "job_timeout_ms": 20_000,
    "running_lease_ms": 30_000,
    "queue_wait_ms": 2000,
    "affinity_wait_ms": 500,
    "ack_timeout_ms": 1500,
    "reservation_ttl_ms": 5000,
    "redis_timeout_ms": 400,
}


@pytest.fixture(scope="module")
def scheduler() -> Iterator[Scheduler]:
    """Two of each service, and four nodes that know both dispatchers."""
    with (
        tempfile.TemporaryDirectory(prefix="lingua-redis-") as folder,
        EmbeddedRedis(data_dir=Path(folder)) as redis,
        Scheduler(redis_url=redis.url, instances=2, **SETTINGS) as made,
    ):
        made.add_nodes([addresses(made.dispatchers)] * 4, slots=PEOPLE, work_ms=WORK_MS)
        yield made
        made.check_logs()


@pytest.mark.parametrize("kind", ["gateway", "dispatcher", "pool service"])
async def test_everybody_is_served_again_soon_after_the_freeze_of_a(
    scheduler: Scheduler, record_property: Callable[[str, object], None], kind: str
) -> None:
    async with talking(scheduler, SHORT) as crowd:
        frozen = await victim(scheduler, kind)
        began = time.monotonic()
        with frozen.frozen():
            await crowd.hear_more(2)
            served_after = time.monotonic() - began
        await crowd.hear_more(1)
    crowd.check(f"freeze of a {kind}", record_property)
    assert served_after < SERVED_WITHIN_S
