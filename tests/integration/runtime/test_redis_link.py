"""The link to Redis: shared round trips, fast failure, recovery without help."""

import asyncio
import contextlib
import logging
import socket
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import redis

from lingua_scheduler.services.runtime.errors import DependencyDownError
from lingua_scheduler.services.runtime.redis import pipe
from lingua_scheduler.services.runtime.redis.direct_pipe import UnexpectedPartsError
from lingua_scheduler.services.runtime.redis.embedded.server import EmbeddedRedis
from lingua_scheduler.services.runtime.redis.link import RedisLink
from lingua_scheduler.services.runtime.redis.primary import RedisUnfitError, ScriptError

Eventually = Callable[..., Awaitable[None]]

SCRIPTS = {
    "echo": "return ARGV[1]",
    "key": "return KEYS[1]",
    "add": "return redis.call('INCRBY', KEYS[1] .. ':n', ARGV[1])",
    "fill": "redis.call('SET', KEYS[1] .. ':' .. ARGV[1], string.rep('x', 100000)) return 1",
    "broken": "return redis.call('INCR', KEYS[1], 'one', 'too', 'many')",
    "thrown": "return nothing.at.all",
}
# A call must fail within 400 ms. Machines that run tests are busy: this is still no waiting for
# a reply that never comes.
SOON_S = 1.5


@pytest.fixture(params=["direct", "public"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every test runs with redis-py's private parts, and as if they were not as expected."""
    if request.param == "public":

        def unexpected(wire: object) -> None:
            raise UnexpectedPartsError("as a test wants it")

        monkeypatch.setattr(pipe, "DirectPipe", unexpected)
    return str(request.param)


@asynccontextmanager
async def opened(url: str, prefix: str, **options: Any) -> AsyncIterator[RedisLink]:
    link = RedisLink(url=url, prefix=prefix, scripts=SCRIPTS, **options)
    try:
        await link.open()
        yield link
    finally:
        await link.close()


def ask(server: EmbeddedRedis, *command: str | int) -> Any:
    with redis.Redis.from_url(server.url, protocol=2) as client:
        return client.execute_command(*command)


def stat(server: EmbeddedRedis, name: str) -> int:
    with redis.Redis.from_url(server.url, protocol=2) as client:
        return int(client.info("stats")[name])


async def test_a_script_gets_the_prefix_and_its_arguments_and_answers_raw(
    redis_url: str, prefix: str
) -> None:
    async with opened(redis_url, prefix) as link:
        assert await link.call("key") == prefix.encode()
        assert [await link.call("echo", value) for value in ("ä", b"\x00\xff", 7, 1.5)] == [
            "ä".encode(),
            b"\x00\xff",
            b"7",
            b"1.5",
        ]
        assert await link.call("add", 5) == 5
        assert await link.command("GET", f"{prefix}:n") == b"5"
        assert await link.command("GET", f"{prefix}:none") is None


async def test_calls_made_together_share_a_few_round_trips(
    own_redis: EmbeddedRedis, prefix: str
) -> None:
    async with opened(own_redis.url, prefix) as link:
        await link.call("add", 0)
        reads = stat(own_redis, "total_reads_processed")
        answers = await asyncio.gather(*(link.call("echo", n) for n in range(1000)))
        spent = stat(own_redis, "total_reads_processed") - reads
        assert answers == [str(n).encode() for n in range(1000)]
        # Four batches, a new connection, and the reads of the statistics themselves.
        assert spent < 40


async def test_the_link_keeps_to_two_connections(own_redis: EmbeddedRedis, prefix: str) -> None:
    async with opened(own_redis.url, prefix) as link:
        before = stat(own_redis, "total_connections_received")

        async def caller() -> None:
            for _ in range(20):
                await link.call("add", 1)

        await asyncio.gather(*(caller() for _ in range(50)))
        # Two connections of the link, and the one that reads the second number.
        assert stat(own_redis, "total_connections_received") - before <= 3
        assert await link.call("add", 0) == 1000


async def test_flushed_scripts_are_loaded_again_and_each_call_runs_once(
    own_redis: EmbeddedRedis, prefix: str
) -> None:
    async with opened(own_redis.url, prefix) as link:
        await link.call("add", 1)
        for _ in range(3):
            ask(own_redis, "SCRIPT", "FLUSH")
            await asyncio.gather(*(link.call("add", 1) for _ in range(300)))
        assert await link.call("add", 0) == 901


async def test_a_killed_redis_fails_calls_fast_and_comes_back_by_itself(
    own_redis: EmbeddedRedis, prefix: str, eventually: Eventually
) -> None:
    async with opened(own_redis.url, prefix) as link:
        changes: list[bool] = []
        link.on_change.append(lambda up, _reason: changes.append(up))
        assert await link.call("add", 3) == 3
        own_redis.kill()
        for _ in range(3):
            began = time.monotonic()
            with pytest.raises(DependencyDownError) as caught:
                await link.call("add", 1)
            assert time.monotonic() - began < SOON_S
        assert caught.value.retry_after_ms > 0
        assert not link.up
        assert link.down_reason
        await asyncio.to_thread(own_redis.restart)
        await eventually(lambda: link.up)
        assert await link.call("add", 1) == 1
        assert changes == [False, True]
        assert link.down_reason == ""


async def test_calls_under_way_when_redis_dies_all_end(
    own_redis: EmbeddedRedis, prefix: str
) -> None:
    async with opened(own_redis.url, prefix) as link:
        own_redis.pause()
        calls = [asyncio.create_task(link.call("add", 1)) for _ in range(600)]
        await asyncio.sleep(0)
        began = time.monotonic()
        await asyncio.to_thread(own_redis.kill)
        ends = await asyncio.gather(*calls, return_exceptions=True)
        assert time.monotonic() - began < SOON_S
        assert all(isinstance(end, DependencyDownError) for end in ends)


async def test_a_restart_while_the_link_is_idle_goes_unnoticed(
    own_redis: EmbeddedRedis, prefix: str
) -> None:
    async with opened(own_redis.url, prefix) as link:
        await asyncio.gather(*(link.call("add", 1) for _ in range(10)))
        await asyncio.to_thread(own_redis.restart)
        assert await link.call("add", 1) == 1
        assert link.up


async def test_connections_dropped_while_idle_go_unnoticed(
    own_redis: EmbeddedRedis, prefix: str
) -> None:
    async with opened(own_redis.url, prefix) as link:
        for n in range(1, 4):
            await asyncio.to_thread(ask, own_redis, "CLIENT", "KILL", "TYPE", "normal")
            assert await link.call("add", 1) == n
        assert link.up


# redis-py has no public way to notice a reset.
@pytest.mark.parametrize("way", ["direct"], indirect=True)
async def test_connections_reset_while_idle_go_unnoticed(
    own_redis: EmbeddedRedis, prefix: str
) -> None:
    """As a firewall or a load balancer does it: by a reset, and not by an end of file."""
    sockets: list[socket.socket] = []
    pumps: set[asyncio.Task[None]] = set()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while chunk := await reader.read(65536):
                writer.write(chunk)
        writer.transport.abort()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sockets.append(writer.get_extra_info("socket"))
        inner = await asyncio.open_connection("127.0.0.1", own_redis.port)
        for ends in ((reader, inner[1]), (inner[0], writer)):
            pumps.add(asyncio.create_task(pump(*ends)))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        url = f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with opened(url, prefix) as link:
            for n in range(1, 4):
                assert await link.call("add", 1) == n
                for each in sockets:
                    if each.fileno() != -1:
                        # Closing sends a reset at once.
                        each.setsockopt(
                            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                        )
                await asyncio.to_thread(ask, own_redis, "CLIENT", "KILL", "TYPE", "normal")
                await asyncio.gather(*pumps)
                pumps.clear()
                # The reset has come in when a later connection's handshake has.
                _, probe = await asyncio.open_connection("127.0.0.1", own_redis.port)
                probe.close()
                await probe.wait_closed()
            assert link.up


async def test_a_stopped_redis_times_out_and_its_late_replies_are_never_misread(
    own_redis: EmbeddedRedis, prefix: str, eventually: Eventually
) -> None:
    async with opened(own_redis.url, prefix) as link:
        await link.call("echo", "warm")
        for turn in range(3):
            own_redis.pause()
            began = time.monotonic()
            ends = await asyncio.gather(
                *(link.call("echo", f"late {turn} {n}") for n in range(20)),
                return_exceptions=True,
            )
            assert time.monotonic() - began < SOON_S
            assert all(isinstance(end, DependencyDownError) for end in ends)
            assert not link.up
            own_redis.resume()
            await eventually(lambda: link.up)
            fresh = [f"fresh {turn} {n}" for n in range(50)]
            answers = await asyncio.gather(*(link.call("echo", text) for text in fresh))
            assert answers == [text.encode() for text in fresh]


async def test_while_the_link_is_down_a_call_does_not_wait(
    own_redis: EmbeddedRedis, prefix: str
) -> None:
    async with opened(own_redis.url, prefix, timeout_ms=5000) as link:
        own_redis.kill()
        with pytest.raises(DependencyDownError):
            await link.call("add", 1)
        began = time.monotonic()
        for _ in range(100):
            with pytest.raises(DependencyDownError):
                await link.call("add", 1)
        assert time.monotonic() - began < 2.0


async def test_the_time_of_a_call_includes_its_wait_in_the_queue(
    own_redis: EmbeddedRedis, prefix: str
) -> None:
    async with opened(own_redis.url, prefix) as link:
        own_redis.pause()

        async def timed() -> float:
            began = time.monotonic()
            with pytest.raises(DependencyDownError):
                await link.call("echo", 1)
            return time.monotonic() - began

        calls = []
        for _ in range(10):
            # The first calls take both connections; later ones have to queue.
            calls.append(asyncio.create_task(timed()))
            await asyncio.sleep(0.02)
        assert max(await asyncio.gather(*calls)) < SOON_S


async def test_a_cancelled_caller_does_not_disturb_the_others(redis_url: str, prefix: str) -> None:
    async with opened(redis_url, prefix) as link:
        for _ in range(20):
            calls = [asyncio.create_task(link.call("echo", n)) for n in range(100)]
            await asyncio.sleep(0)
            for call in calls[::3]:
                call.cancel()
            ends = await asyncio.gather(*calls, return_exceptions=True)
            for n, end in enumerate(ends):
                if n % 3:
                    assert end == str(n).encode()
        assert link.up


async def test_a_fault_of_a_script_names_it_and_leaves_the_link_up(
    redis_url: str, prefix: str
) -> None:
    async with opened(redis_url, prefix) as link:
        for name in ("broken", "thrown"):
            good, bad = await asyncio.gather(
                link.call("echo", "fine"), link.call(name), return_exceptions=True
            )
            assert good == b"fine"
            assert isinstance(bad, ScriptError)
            assert f"script {name}" in str(bad)
        with pytest.raises(redis.ResponseError):
            await link.command("NO-SUCH-COMMAND")
        assert link.up


async def test_a_script_that_does_not_compile_is_named_at_the_start(
    redis_url: str, prefix: str
) -> None:
    link = RedisLink(url=redis_url, prefix=prefix, scripts={"good": "return 1", "bad": "retrun"})
    with pytest.raises(ScriptError, match="script bad"):
        await link.open()
    await link.close()


@pytest.mark.parametrize("forbidden", [(), ("--rename-command", "CONFIG", "")])
async def test_a_redis_that_may_evict_keys_is_refused(
    prefix: str, forbidden: tuple[str, ...]
) -> None:
    args = ("--maxmemory-policy", "allkeys-lru", *forbidden)
    with EmbeddedRedis(args=args) as server:
        link = RedisLink(url=server.url, prefix=prefix, scripts=SCRIPTS)
        with pytest.raises(RedisUnfitError, match=r"allkeys-lru.*noeviction"):
            await link.open()
        assert not link.up


async def test_a_managed_redis_without_config_is_accepted(prefix: str) -> None:
    with EmbeddedRedis(args=("--rename-command", "CONFIG", "")) as server:
        async with opened(server.url, prefix) as link:
            assert await link.call("echo", "ok") == b"ok"


async def test_a_primary_that_becomes_a_replica_takes_the_link_down_until_it_is_one_again(
    own_redis: EmbeddedRedis, prefix: str, eventually: Eventually
) -> None:
    with EmbeddedRedis() as other:
        async with opened(own_redis.url, prefix) as link:
            await link.call("add", 1)
            ask(own_redis, "REPLICAOF", "127.0.0.1", other.port)
            with pytest.raises(DependencyDownError, match="READONLY"):
                await link.call("add", 1)
            assert not link.up
            await eventually(lambda: "replica" in link.down_reason)
            ask(own_redis, "REPLICAOF", "NO", "ONE")
            await eventually(lambda: link.up)
            assert await link.call("add", 1) >= 1


async def test_a_full_redis_refuses_in_its_own_words_and_the_link_stays_up(prefix: str) -> None:
    with EmbeddedRedis(args=("--maxmemory", "4mb")) as server:
        async with opened(server.url, prefix, timeout_ms=2000) as link:
            fills = (link.call("fill", n) for n in range(200))
            with pytest.raises(DependencyDownError, match="OOM"):
                await asyncio.gather(*fills)
            assert link.up
            assert await link.call("echo", "still") == b"still"
            ask(server, "FLUSHALL", "SYNC")
            assert await link.call("fill", 1) == 1


async def test_a_redis_that_is_away_at_the_start_is_named_without_its_password(
    own_redis: EmbeddedRedis, prefix: str
) -> None:
    own_redis.kill()
    url = own_redis.url.replace("redis://", "redis://user:hunter2@")
    with pytest.raises(DependencyDownError, match=str(own_redis.port)) as caught:
        async with opened(url, prefix):
            pass
    assert "hunter2" not in str(caught.value)


async def test_a_wrong_password_is_reported_and_the_right_one_works(prefix: str) -> None:
    with EmbeddedRedis() as server:
        ask(server, "CONFIG", "SET", "requirepass", "s3cret")
        with pytest.raises(DependencyDownError, match=r"(?i)password|auth") as caught:
            async with opened(server.url.replace("redis://", "redis://:wr0ng@"), prefix):
                pass
        assert "wr0ng" not in str(caught.value)
        async with opened(server.url.replace("redis://", "redis://:s3cret@"), prefix) as link:
            assert await link.call("echo", "in") == b"in"


async def test_a_closed_link_fails_its_calls_and_can_be_opened_again(
    redis_url: str, prefix: str
) -> None:
    link = RedisLink(url=redis_url, prefix=prefix, scripts=SCRIPTS)
    for _ in range(2):
        await link.open()
        calls = [asyncio.create_task(link.call("add", 1)) for _ in range(10)]
        await asyncio.sleep(0)
        await link.close()
        for end in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(end, int | DependencyDownError)
        with pytest.raises(DependencyDownError, match="closed"):
            await link.call("add", 1)


async def test_a_unix_socket_serves_as_well(prefix: str) -> None:
    with EmbeddedRedis(unix_socket=True) as server:
        async with opened(server.url, prefix) as link:
            assert await link.call("add", 2) == 2


async def test_a_stalled_event_loop_is_not_taken_for_a_slow_redis(
    redis_url: str, prefix: str
) -> None:
    async with opened(redis_url, prefix, timeout_ms=100) as link:
        await asyncio.gather(*(link.call("echo", "warm") for _ in range(600)))
        for n in range(3):
            call = asyncio.create_task(link.call("echo", n))
            for _ in range(3):
                await asyncio.sleep(0)
            # Blocks the loop on purpose, well over the time of a call.
            time.sleep(0.3)  # noqa: ASYNC251
            assert await call == str(n).encode()
        assert link.up


async def test_a_callback_that_fails_is_logged_and_does_no_harm(
    own_redis: EmbeddedRedis, prefix: str, caplog: pytest.LogCaptureFixture, eventually: Eventually
) -> None:
    caplog.set_level(logging.INFO)
    async with opened(own_redis.url, prefix) as link:
        link.on_change.append(lambda _up, _reason: 1 // 0)
        own_redis.kill()
        with pytest.raises(DependencyDownError):
            await link.call("add", 1)
        await asyncio.to_thread(own_redis.restart)
        await eventually(lambda: link.up)
    assert "ZeroDivisionError" in caplog.text
