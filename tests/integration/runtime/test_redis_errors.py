"""Failed calls to Redis are counted once, by kind."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable

import pytest

from lingua_scheduler.services.runtime.redis.embedded.server import EmbeddedRedis
from lingua_scheduler.services.runtime.redis.link import RedisLink
from lingua_scheduler.services.runtime.redis.server_link import ERROR_KINDS
from tests.support.services import PoolProcess

SCRIPTS = {
    "echo": "return ARGV[1]",
    "fill": "redis.call('SET', KEYS[1] .. ':' .. ARGV[1], string.rep('x', 100000)) return 1",
    "thrown": "return nothing.at.all",
}


async def kinds(
    url: str,
    prefix: str,
    calls: Callable[[RedisLink], Iterable[Awaitable[object]]],
    before: Callable[[], object] = lambda: None,
    **options: int,
) -> tuple[Counter[str], int]:
    """The kinds that were told of while these calls were made, and how many calls failed."""
    told: Counter[str] = Counter()
    link = RedisLink(url=url, prefix=prefix, scripts=SCRIPTS, **options)
    link.on_error.append(lambda kind: told.update([kind]))
    await link.open()
    try:
        await link.call("echo", "warm")
        before()
        ends = await asyncio.gather(*calls(link), return_exceptions=True)
        failed = sum(isinstance(end, Exception) for end in ends)
        assert set(told) <= set(ERROR_KINDS)
        return Counter(told), failed
    finally:
        await link.close()


async def test_successful_calls_are_not_counted(redis_url: str, prefix: str) -> None:
    told, failed = await kinds(redis_url, prefix, lambda link: [link.call("echo", 1)])
    assert (told, failed) == (Counter(), 0)


async def test_calls_that_a_stopped_redis_does_not_answer_are_timeouts(
    own_redis: EmbeddedRedis, prefix: str
) -> None:
    told, failed = await kinds(
        own_redis.url,
        prefix,
        lambda link: [link.call("echo", n) for n in range(20)],
        own_redis.pause,
    )
    assert (told, failed) == (Counter(timeout=20), 20)


async def test_calls_to_a_killed_redis_are_lost_and_then_refused_at_once(
    own_redis: EmbeddedRedis, prefix: str
) -> None:
    async def one_by_one(link: RedisLink) -> None:
        for _ in range(3):
            with pytest.raises(Exception, match="cannot be used"):
                await link.call("echo", 1)

    told, _ = await kinds(own_redis.url, prefix, lambda link: [one_by_one(link)], own_redis.kill)
    assert told == Counter(lost=1, away=2)


async def test_a_full_redis_refuses(prefix: str) -> None:
    with EmbeddedRedis(args=("--maxmemory", "4mb")) as server:
        told, failed = await kinds(
            server.url,
            prefix,
            lambda link: [link.call("fill", n) for n in range(200)],
            # So much at once takes a busy machine its time.
            timeout_ms=10_000,
        )
    assert told == Counter(refused=failed)
    assert failed > 0


async def test_a_fault_of_a_script_is_an_error(redis_url: str, prefix: str) -> None:
    told, failed = await kinds(
        redis_url, prefix, lambda link: [link.call("thrown"), link.command("NO-SUCH-COMMAND")]
    )
    assert (told, failed) == (Counter(error=2), 2)


async def test_a_service_exports_the_counts(own_redis: EmbeddedRedis, prefix: str) -> None:
    # Its sweep alone asks Redis several times a second.
    with PoolProcess(redis_url=own_redis.url, prefix=prefix, sweep_interval_ms=50) as process:
        assert await process.metric("lingua_redis_errors_total") == 0
        own_redis.kill()
        await process.reaches(1, "lingua_redis_errors_total", kind="away")
        assert await process.metric("lingua_redis_errors_total", kind="lost") >= 1
        assert await process.metric("lingua_pool_redis_up") == 0
