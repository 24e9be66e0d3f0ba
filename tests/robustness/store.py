"""The Redis of a world: one server that keeps its data, one that does not, or a Sentinel's pair."""

import contextlib
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import redis

from lingua_scheduler.services.runtime.redis.embedded.server import EmbeddedRedis
from tests.support.redis_servers import info, knows_replica, packaged, sentinel

AOF, EMPTY, SENTINEL = "aof", "empty", "sentinel"
# Quick to start, and what was answered is in the file: a kill of the server loses nothing.
_ALWAYS = ("--appendfsync", "no")
_READY_S = 20.0


class Store:
    """A Redis that can be struck.

    Attributes:
        kind: AOF (comes back with its data), EMPTY (comes back without) or SENTINEL.
        url: what services are told, but for the link that is put in between.
        primary: the server that counts.
    """

    def __init__(self, kind: str, url: str, servers: list[EmbeddedRedis]) -> None:
        self.kind = kind
        self.url = url
        self.servers = servers
        self.primary = servers[0]

    def ask(self, *command: str | int) -> Any:
        """A command to the primary, past all links."""
        with redis.Redis.from_url(self.primary.url, protocol=2, socket_timeout=5) as client:
            return client.execute_command(*command)

    def fail_over(self) -> None:
        """Kills the primary; returns at once, the sentinel finds out by itself."""
        self.primary.kill()

    def has_failed_over(self) -> bool:
        """Whether another server is the primary now; then it counts from here on."""
        for server in self.servers:
            if server.pid and info(server.url, "replication")["role"] == "master":
                self.primary = server
                return True
        return False

    def bring_back(self) -> None:
        """Starts the server that was killed, as a replica: the sentinel would take its time."""
        for server in self.servers:
            if server is not self.primary:
                server.restart()
                with redis.Redis.from_url(server.url, protocol=2, socket_timeout=5) as client:
                    client.execute_command("REPLICAOF", "127.0.0.1", self.primary.port)
        until(self._replicated, _READY_S)

    def _replicated(self) -> bool:
        roles = [info(each.url, "replication") for each in self.servers]
        return [each.get("master_link_status", "up") for each in roles] == ["up"] * len(roles) and {
            each["role"] for each in roles
        } == {"master", "slave"}


def until(condition: Any, within: float) -> None:
    """Returns when something holds; fails after so many seconds."""
    deadline = time.monotonic() + within
    while True:
        with contextlib.suppress(redis.RedisError):
            if condition():
                return
        assert time.monotonic() < deadline, f"not within {within} s"
        time.sleep(0.05)


@contextlib.contextmanager
def running_store(kind: str) -> Iterator[Store]:
    """A store of this kind; nothing of it is left at the end."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lingua-store-")))
        if kind == SENTINEL:
            yield _with_sentinel(stack, folder)
            return
        options: dict[str, Any] = {"data_dir": folder, "args": _ALWAYS} if kind == AOF else {}
        server = stack.enter_context(EmbeddedRedis(**options))
        yield Store(kind, server.url, [server])


def _with_sentinel(stack: ExitStack, folder: Path) -> Store:
    quick = ("--repl-diskless-sync-delay", "0")
    primary = stack.enter_context(EmbeddedRedis(args=quick, binary=packaged()))
    follow = (*quick, "--replicaof", f"127.0.0.1 {primary.port}")
    replica = stack.enter_context(EmbeddedRedis(args=follow, binary=packaged()))
    until(lambda: info(replica.url, "replication")["master_link_status"] == "up", _READY_S)
    port = stack.enter_context(sentinel(folder, primary))
    until(lambda: knows_replica(f"redis://127.0.0.1:{port}"), _READY_S)
    url = f"redis+sentinel://127.0.0.1:{port}/mine/0"
    return Store(SENTINEL, url, [primary, replica])
