"""Whether the pool service can work: it can as long as one of its cells answers."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator

import pytest

from lingua_scheduler.services.pool_service.cells.reach import reach_any
from lingua_scheduler.services.runtime.errors import DependencyDownError
from lingua_scheduler.services.runtime.redis.cells.cells import Cells
from lingua_scheduler.services.runtime.redis.embedded.server import EmbeddedRedis
from lingua_scheduler.services.runtime.redis.scripts import load_scripts
from lingua_scheduler.services.runtime.settings.settings import load_settings
from tests.support.process import environment

# Long enough for a test that waits for it by mistake to be told from one that does not.
TIMEOUT_MS = 3000


@pytest.fixture
def servers() -> Iterator[list[EmbeddedRedis]]:
    with EmbeddedRedis() as first, EmbeddedRedis() as second:
        yield [first, second]


@pytest.fixture
async def cells(servers: list[EmbeddedRedis], prefix: str) -> AsyncIterator[Cells]:
    """One on each server."""
    urls = " ".join(server.url for server in servers)
    settings = environment(
        redis_url=urls, redis_prefix=prefix, cells=2, redis_timeout_ms=TIMEOUT_MS
    )
    made = Cells(load_settings(settings), load_scripts())
    await made.open()
    yield made
    await made.close()


@pytest.mark.parametrize("away", [0, 1])
async def test_one_cell_that_answers_is_enough(
    cells: Cells, servers: list[EmbeddedRedis], away: int
) -> None:
    await reach_any(cells)
    servers[away].kill()
    await reach_any(cells)
    servers[1 - away].kill()
    with pytest.raises(DependencyDownError):
        await reach_any(cells)


async def test_a_cell_that_is_silent_is_not_waited_for(
    cells: Cells, servers: list[EmbeddedRedis]
) -> None:
    os.kill(servers[0].pid, signal.SIGSTOP)
    try:
        async with asyncio.timeout(TIMEOUT_MS / 2000):
            await reach_any(cells)
    finally:
        os.kill(servers[0].pid, signal.SIGCONT)
