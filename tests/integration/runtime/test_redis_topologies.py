"""The link's addresses: what a URL may say, and a real Sentinel, a real Cluster and TLS."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import pytest

from lingua_scheduler.services.runtime.errors import DependencyDownError
from lingua_scheduler.services.runtime.redis.embedded.server import EmbeddedRedis
from lingua_scheduler.services.runtime.redis.link import RedisLink
from lingua_scheduler.services.runtime.settings.redis_url import (
    BadRedisUrlError,
    Topology,
    parse_redis_url,
)
from tests.support.ports import free_port
from tests.support.redis_cluster import running_cluster
from tests.support.redis_servers import (
    ask,
    info,
    knows_replica,
    packaged,
    sentinel,
    wait_until,
)
from tests.support.redis_tls import Certificate, make_certificate

Eventually = Callable[..., Awaitable[None]]

SCRIPTS = {"add": "return redis.call('INCRBY', KEYS[1] .. ':n', ARGV[1])"}


@asynccontextmanager
async def opened(url: str, prefix: str) -> AsyncIterator[RedisLink]:
    # A failover is not what these calls are timed for.
    link = RedisLink(url=url, prefix=prefix, scripts=SCRIPTS, timeout_ms=1000)
    try:
        await link.open()
        yield link
    finally:
        await link.close()


async def keep_adding(link: RedisLink, eventually: Eventually) -> int:
    """What a caller does through a failover: try, fail fast, try again."""
    answer: list[int] = []

    async def attempt() -> None:
        while not answer:
            with contextlib.suppress(DependencyDownError):
                answer.append(await link.call("add", 1))
            await asyncio.sleep(0.02)

    attempts = asyncio.create_task(attempt())
    try:
        await eventually(lambda: bool(answer), within=30)
    finally:
        attempts.cancel()
        await asyncio.gather(attempts, return_exceptions=True)
    return answer[0]


# What a URL may say


def test_a_plain_url_is_read_as_redis_py_reads_it() -> None:
    target = parse_redis_url("rediss://me:p%40ss@redis.example:6380/3?ssl_cert_reqs=none")
    assert target.topology is Topology.SINGLE
    assert target.seeds == (("redis.example", 6380),)
    expected = {"username": "me", "password": "p@ss", "db": 3, "ssl_cert_reqs": "none"}
    assert dict(target.options) == expected


def test_a_sentinel_url_names_sentinels_master_and_database() -> None:
    target = parse_redis_url("redis+sentinel://:pw@a:1,b,[::1]:3/mine/2?sentinel_password=other")
    assert target.topology is Topology.SENTINEL
    assert target.seeds == (("a", 1), ("b", 26379), ("::1", 3))
    assert target.master_name == "mine"
    assert dict(target.options) == {"password": "pw", "db": 2}
    assert dict(target.sentinel_options) == {"password": "other"}


def test_a_cluster_url_names_some_of_its_nodes() -> None:
    target = parse_redis_url("rediss+cluster://a:7000,b:7001?ssl_ca_certs=ca.pem")
    assert target.topology is Topology.CLUSTER
    assert target.seeds == (("a", 7000), ("b", 7001))
    assert target.options["ssl_ca_certs"] == "ca.pem"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost:6379",
        "http://:hunter2@host",
        "redis://:hunter2@",
        "redis://:hunter2@host:port",
        "redis://:hunter2@one,two",
        "redis://:hunter2#rest@host",
        "redis://user:hunter2/rest@host",
        "redis://:hunter2@host/not-a-number",
        "redis://:hunter2@host?no_such_option=1",
        "redis://:hunter2@host?socket_timeout=9",
        "redis+sentinel://:hunter2@host:26379",
        "redis+cluster://:hunter2@host:7000/1",
        "redis+cluster://:hunter2@host:7000?db=1",
        "rediss://:hunter2@host?ssl_cert_reqs=maybe",
        "unix+cluster:///run/redis.sock",
        "unix://",
    ],
)
def test_a_bad_url_is_refused_with_what_is_allowed_and_without_the_password(url: str) -> None:
    with pytest.raises(BadRedisUrlError, match=r"LINGUA_REDIS_URL.*redis\+sentinel://") as caught:
        parse_redis_url(url)
    assert isinstance(caught.value, ValueError)
    assert "hunter2" not in str(caught.value)


def test_the_repr_of_a_parsed_url_has_no_password() -> None:
    target = parse_redis_url("redis+sentinel://:hunter2@a/mine?sentinel_password=hunter2")
    assert "hunter2" not in repr(target)


@pytest.mark.parametrize("prefix", ["lingua:v1", "lingua:{}:{c7}", "lingua:{c7", "}{"])
def test_a_cluster_needs_a_prefix_with_a_hash_tag(prefix: str) -> None:
    with pytest.raises(BadRedisUrlError, match=r"lingua:v1:\{c7\}"):
        RedisLink(url="redis+cluster://host:7000", prefix=prefix, scripts=SCRIPTS)
    RedisLink(url="redis://host", prefix=prefix, scripts=SCRIPTS)
    RedisLink(url="redis+cluster://host:7000", prefix="lingua:v1:{c7}", scripts=SCRIPTS)


# Sentinel


async def test_the_link_follows_a_sentinel_failover(
    tmp_path: Path, prefix: str, eventually: Eventually
) -> None:
    with ExitStack() as stack:
        primary = stack.enter_context(
            EmbeddedRedis(args=("--repl-diskless-sync-delay", "0"), binary=packaged())
        )
        follow = ("--replicaof", f"127.0.0.1 {primary.port}")
        replica = stack.enter_context(EmbeddedRedis(args=follow, binary=packaged()))
        wait_until(lambda: info(replica.url, "replication")["master_link_status"] == "up")
        port = stack.enter_context(sentinel(tmp_path, primary))
        wait_until(lambda: knows_replica(f"redis://127.0.0.1:{port}"))
        # The first sentinel of the URL is not there: the next one is asked.
        url = f"redis+sentinel://127.0.0.1:{free_port()},127.0.0.1:{port}/mine/0"
        async with opened(url, prefix) as link:
            assert await link.call("add", 1) == 1
            wait_until(lambda: ask(replica.url, "GET", f"{prefix}:n") == b"1")
            primary.kill()
            assert await keep_adding(link, eventually) == 2
            assert info(replica.url, "replication")["role"] == "master"


async def test_a_master_that_the_sentinels_do_not_know_is_named(
    tmp_path: Path, own_redis: EmbeddedRedis, prefix: str
) -> None:
    with sentinel(tmp_path, own_redis) as port:
        wait_until(lambda: not _refuses(port))
        link = RedisLink(
            url=f"redis+sentinel://127.0.0.1:{port}/other", prefix=prefix, scripts=SCRIPTS
        )
        with pytest.raises(DependencyDownError, match="no master named 'other'"):
            await link.open()


def _refuses(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


# Cluster


async def test_the_link_finds_the_owner_of_its_slot_and_follows_it(
    prefix: str, eventually: Eventually
) -> None:
    tagged = f"{prefix}:{{c7}}"
    with running_cluster() as cluster:
        owner = cluster.master_of(tagged)
        other, replica = cluster.another_master(tagged), cluster.replica_of(owner)
        url = f"redis+cluster://127.0.0.1:{free_port()},127.0.0.1:{other.port}"
        async with opened(url, tagged) as link:
            assert await link.call("add", 1) == 1
            assert cluster.ask(owner, "GET", f"{tagged}:n") == b"1"

            # A planned change of roles: the old owner answers MOVED.
            cluster.ask(replica, "CLUSTER", "FAILOVER")
            wait_until(lambda: info(owner.url, "replication")["role"] == "slave")
            assert await keep_adding(link, eventually) == 2

            # A crash of the new owner: the first one is voted in again.
            wait_until(lambda: info(owner.url, "replication").get("master_link_status") == "up")
            assert cluster.kill_master_of(tagged) is replica
            assert await keep_adding(link, eventually) == 3
            assert info(owner.url, "replication")["role"] == "master"


# TLS


@asynccontextmanager
async def tls_in_front_of(port: int, certificate: Certificate) -> AsyncIterator[int]:
    """Not every server is built with TLS, so it ends in a proxy before a real one."""

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while chunk := await reader.read(65536):
                writer.write(chunk)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(pump(reader, inner_writer), pump(inner_reader, writer))

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate.file, certificate.key)
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    async with server:
        yield int(server.sockets[0].getsockname()[1])


async def test_tls_is_used_and_the_certificate_checked(
    own_redis: EmbeddedRedis, prefix: str, tmp_path: Path
) -> None:
    certificate = make_certificate(tmp_path)
    async with tls_in_front_of(own_redis.port, certificate) as port:
        url = f"rediss://localhost:{port}/0"
        async with opened(url + certificate.query, prefix) as link:
            assert await link.call("add", 2) == 2
        with pytest.raises(DependencyDownError, match=r"(?i)certificate"):
            async with opened(url, prefix):
                pass
        async with opened(f"{url}?ssl_cert_reqs=none", prefix) as link:
            assert await link.call("add", 1) == 3
