"""Passwords and TLS of a real Sentinel and a real Redis Cluster."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from lingua_scheduler.services.runtime.errors import DependencyDownError
from lingua_scheduler.services.runtime.redis.embedded.binary import ServerBinary
from lingua_scheduler.services.runtime.redis.embedded.server import EmbeddedRedis
from lingua_scheduler.services.runtime.redis.link import RedisLink
from tests.support.ports import free_port
from tests.support.redis_cluster import running_cluster
from tests.support.redis_servers import (
    HOST,
    ask,
    info,
    knows_replica,
    packaged,
    sentinel,
    wait_until,
)
from tests.support.redis_tls import Certificate, make_certificate, server_with_tls

Eventually = Callable[..., Awaitable[None]]

PASSWORD = "hunter2"
SENTINEL_PASSWORD = "hunter3"
SCRIPTS = {"add": "return redis.call('INCRBY', KEYS[1] .. ':n', ARGV[1])"}


@dataclass(frozen=True)
class Tls:
    """A server that can do TLS, and a certificate for it."""

    binary: ServerBinary
    certificate: Certificate


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Tls:
    folder = tmp_path_factory.mktemp("tls")
    return Tls(server_with_tls(folder), make_certificate(folder))


@asynccontextmanager
async def opened(url: str, prefix: str) -> AsyncIterator[RedisLink]:
    link = RedisLink(url=url, prefix=prefix, scripts=SCRIPTS, timeout_ms=4000)
    await link.open()
    try:
        yield link
    finally:
        await link.close()


async def reason_not_to_open(url: str, prefix: str) -> str:
    with pytest.raises(DependencyDownError) as caught:
        async with opened(url, prefix):
            pass
    shown = str(caught.value)
    assert "hunter" not in shown
    return shown


@dataclass(frozen=True)
class Watched:
    """A primary and its replica, which a sentinel watches. Each has a password.

    `place` is the part of a URL after the password.
    """

    primary: EmbeddedRedis
    replica: EmbeddedRedis
    place: str

    def url(self, *, password: str = PASSWORD, sentinel_password: str = SENTINEL_PASSWORD) -> str:
        scheme = "rediss+sentinel" if "ssl_" in self.place else "redis+sentinel"
        more = f"{'&' if '?' in self.place else '?'}sentinel_password={sentinel_password}"
        return f"{scheme}://:{password}@{self.place}{more}"


@contextmanager
def watched(folder: Path, tls: Tls | None = None) -> Iterator[Watched]:
    binary = tls.binary if tls else packaged()
    with ExitStack() as stack:

        def server(*args: str) -> tuple[EmbeddedRedis, int]:
            port = free_port() if tls else 0
            more = tls.certificate.arguments(port) if tls else ()
            started = stack.enter_context(EmbeddedRedis(args=(*args, *more), binary=binary))
            # The embedded server must be ready before it has a password.
            options = ("masterauth", PASSWORD, "requirepass", PASSWORD)
            ask(started.url, "CONFIG", "SET", *options)
            started.url = started.url.replace("//", f"//:{PASSWORD}@")
            return started, port or started.port

        primary, port = server("--repl-diskless-sync-delay", "0")
        replica, _ = server()
        ask(replica.url, "REPLICAOF", HOST, port)
        wait_until(lambda: info(replica.url, "replication")["master_link_status"] == "up")
        lines = [f"sentinel auth-pass mine {PASSWORD}", f"requirepass {SENTINEL_PASSWORD}"]
        query, asking = "", f"redis://:{SENTINEL_PASSWORD}@{HOST}:"
        if tls is not None:
            lines = ["port 0", "tls-port {port}", *lines]
            lines += [f"{name} {value}" for name, value in tls.certificate.options.items()]
            query, asking = tls.certificate.query, asking.replace("redis:", "rediss:")
        watcher = stack.enter_context(
            sentinel(folder, primary, lines=lines, primary_port=port, binary=binary)
        )
        wait_until(lambda: knows_replica(f"{asking}{watcher}{query}"))
        yield Watched(primary, replica, f"{HOST}:{watcher}/mine/0{query}")


async def assert_follows_failover(servers: Watched, prefix: str, eventually: Eventually) -> None:
    async with opened(servers.url(), prefix) as link:
        assert await link.call("add", 1) == 1
        await asyncio.to_thread(
            wait_until, lambda: ask(servers.replica.url, "GET", f"{prefix}:n") == b"1"
        )
        before = link.server.address
        servers.primary.kill()
        with pytest.raises(DependencyDownError):
            await link.call("add", 1)
        await eventually(lambda: link.up, within=20)
        assert link.server.address != before
        assert await link.call("add", 1) == 2


async def test_sentinels_and_servers_may_have_different_passwords(
    tmp_path: Path, prefix: str, eventually: Eventually
) -> None:
    with watched(tmp_path) as servers:
        unknown = await reason_not_to_open(servers.url(sentinel_password="hunter4"), prefix)
        assert "no sentinel could name the primary" in unknown
        refused = await reason_not_to_open(servers.url(password="hunter4"), prefix)
        assert "WRONGPASS" in refused or "password" in refused
        await assert_follows_failover(servers, prefix, eventually)


async def test_sentinels_and_servers_may_require_tls(
    tmp_path: Path, tls: Tls, prefix: str, eventually: Eventually
) -> None:
    with watched(tmp_path, tls) as servers:
        untrusted = servers.url().replace(
            f"ssl_ca_certs={tls.certificate.file}", "ssl_check_hostname=true"
        )
        assert "certificate" in (await reason_not_to_open(untrusted, prefix)).lower()
        await assert_follows_failover(servers, prefix, eventually)


async def test_a_cluster_may_require_tls_and_a_password(tls: Tls, prefix: str) -> None:
    tagged = f"{prefix}:{{c7}}"
    with running_cluster(
        password=PASSWORD, replicas=False, binary=tls.binary, certificate=tls.certificate
    ) as cluster:
        untrusted = cluster.url.partition("?")[0]
        assert "certificate" in (await reason_not_to_open(untrusted, tagged)).lower()
        async with opened(cluster.url, tagged) as link:
            assert await link.call("add", 1) == 1
            before = link.server.address
            # The servers name each other's ports for TLS to a client that uses it.
            await asyncio.to_thread(cluster.reshard, tagged)
            assert await link.call("add", 1) == 2
            assert link.server.address != before
