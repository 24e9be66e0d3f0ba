"""Redis servers of a test's own: how to ask them, and a sentinel that watches one."""

import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

from lingua_scheduler.services.runtime.redis.embedded.binary import (
    EmbeddedRedisError,
    ServerBinary,
    find_server,
)
from lingua_scheduler.services.runtime.redis.embedded.server import EmbeddedRedis
from tests.support.ports import free_port

HOST = "127.0.0.1"


def packaged() -> ServerBinary:
    """The server that comes with the packages: how these set-ups are made differs by version."""
    try:
        return find_server(path="")
    except EmbeddedRedisError as error:
        pytest.skip(f"the packaged Redis server is not installed: {error}")


def ask(url: str, *command: str | int) -> Any:
    """One command to one server. Blocks."""
    with redis.Redis.from_url(url, protocol=2, socket_timeout=5) as client:
        return client.execute_command(*command)


def info(url: str, section: str) -> dict[str, Any]:
    """A section of what the server says about itself. Blocks."""
    with redis.Redis.from_url(url, protocol=2, socket_timeout=5) as client:
        return dict(client.info(section))


def wait_until(condition: Callable[[], bool], within: float = 20.0) -> None:
    """Blocks until something holds; fails the test after so many seconds."""
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, f"not within {within} s"
        time.sleep(0.02)


@contextmanager
def sentinel(
    folder: Path,
    primary: EmbeddedRedis,
    *,
    lines: Sequence[str] = (),
    primary_port: int = 0,
    binary: ServerBinary | None = None,
) -> Iterator[int]:
    """A sentinel that watches a primary under the name `mine`; its port.

    Args:
        folder: for its configuration, which it changes, and its log.
        primary: to watch.
        lines: further lines of its configuration; `{port}` stands for its port.
        primary_port: under which it finds the primary, if not under the usual one.
        binary: the server; None for the packaged one.
    """
    port = free_port()
    config = folder / "sentinel.conf"
    usual = () if any(line.startswith("port ") for line in lines) else (f"port {port}",)
    config.write_text(
        "\n".join(
            (
                *usual,
                f"bind {HOST}",
                f"dir {folder}",
                f"sentinel monitor mine {HOST} {primary_port or primary.port} 1",
                "sentinel down-after-milliseconds mine 400",
                "sentinel failover-timeout mine 3000",
                *(line.replace("{port}", str(port)) for line in lines),
                "",
            )
        )
    )
    command = [str((binary or packaged()).path), str(config), "--sentinel"]
    with (
        (folder / "sentinel.log").open("wb") as log,
        subprocess.Popen(command, stdout=log, stderr=log) as process,
    ):
        try:
            yield port
        finally:
            process.kill()


def knows_replica(sentinel_url: str) -> bool:
    """Whether the sentinel at this URL knows a replica that it could promote."""
    try:
        replies = ask(sentinel_url, "SENTINEL", "REPLICAS", "mine")
    except redis.RedisError:
        return False
    return any("slave" in str(reply) and "disconnected" not in str(reply) for reply in replies)
