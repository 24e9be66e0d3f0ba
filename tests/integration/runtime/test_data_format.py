"""Releases whose data do not fit together: who starts, who does not, and what they say."""

from collections.abc import Iterator
from typing import Any

import pytest
import redis

from lingua_scheduler.services.runtime.redis.data_format import DataFormatError, format_key
from lingua_scheduler.services.runtime.redis.embedded.server import EmbeddedRedis
from lingua_scheduler.services.runtime.redis.link import RedisLink
from tests.support.process import SOON_S
from tests.support.services import PoolProcess, all_running

MODULE = "runtime.redis.data_format"


class Deployment:
    """Pool services of releases that write and read what a test says."""

    def __init__(self, server: EmbeddedRedis, prefix: str) -> None:
        self.client = redis.Redis.from_url(server.url)
        self.prefix = prefix
        self.url = server.url

    def release(self, *, writes: int = 1, reads: tuple[int, int] = (1, 1)) -> PoolProcess:
        """A pool service; not started yet."""
        limits: dict[str, Any] = {"WRITES": writes, "READS_FROM": reads[0], "READS_TO": reads[1]}
        named = {f"{MODULE}.{name}": value for name, value in limits.items()}
        return PoolProcess(redis_url=self.url, prefix=self.prefix, limits=named, cells=1)

    def says(self, release: PoolProcess) -> str:
        """Starts a service that must refuse; returns what it says."""
        try:
            release.start()
            assert release.wait_end() == 1
            return release.log()
        finally:
            release.stop()


@pytest.fixture
def deployment(own_redis: EmbeddedRedis, prefix: str) -> Iterator[Deployment]:
    made = Deployment(own_redis, prefix)
    yield made
    made.client.close()


def test_a_service_that_cannot_read_the_data_says_which_release_can(
    deployment: Deployment,
) -> None:
    newer = {"format": 3, "version": "0.9.0"}
    deployment.client.hset(format_key(deployment.prefix), mapping=newer)
    said = deployment.says(deployment.release())
    assert f"under {deployment.prefix} have format 3, first written by release 0.9.0" in said
    assert "this release reads format 1. Run release 0.9.0 or a newer one" in said
    said = deployment.says(deployment.release(writes=5, reads=(4, 5)))
    assert "this release reads formats 4 to 5. Upgrade in steps" in said
    assert deployment.client.hgetall(format_key(deployment.prefix))[b"format"] == b"3"


def test_a_service_does_not_write_what_a_running_one_cannot_read(deployment: Deployment) -> None:
    old = deployment.release()
    with all_running([old]):
        said = deployment.says(deployment.release(writes=2, reads=(1, 2)))
        assert "this release writes data of format 2, and the running instance" in said
        assert "reads format 1 at most" in said
        assert old.process.poll() is None
    new = deployment.release(writes=2, reads=(1, 2))
    # The old one was killed, and counts as running until its announcement expires.
    deployment.client.delete(*deployment.client.keys(f"{deployment.prefix}:instance:*"))
    with all_running([new]):
        assert deployment.client.hget(format_key(deployment.prefix), "format") == b"2"
        assert "have format 2" in deployment.says(deployment.release())


def test_a_service_ends_if_redis_gets_data_that_it_cannot_read(deployment: Deployment) -> None:
    release = deployment.release()
    with all_running([release]):
        newer = {"format": 2, "version": "0.9.0"}
        deployment.client.hset(format_key(deployment.prefix), mapping=newer)
        assert release.wait_end(SOON_S + 2) == 1
        assert "refused: the data in Redis" in release.log()


async def test_a_link_does_not_come_up_on_data_that_it_cannot_read(deployment: Deployment) -> None:
    """Also if they are under the prefix of another cell that shares the connection."""
    url, prefix = deployment.url, deployment.prefix
    link = RedisLink(url=url, prefix=prefix, scripts={})
    RedisLink(url=url, prefix=f"{prefix}:other", scripts={}, server=link.server)
    key = format_key(f"{prefix}:other")
    deployment.client.hset(key, mapping={"format": 2, "version": "0.9.0"})
    with pytest.raises(DataFormatError, match="other have format 2"):
        await link.open()
    deployment.client.delete(key)
    await link.open()
    await link.close()
