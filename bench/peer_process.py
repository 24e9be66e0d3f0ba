"""A peer of `peers.py`: its venv, its worker with its own Redis, and its client."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from path import TICKS, Child
from redis import Redis

from lingua_scheduler.services.runtime.redis.embedded import EmbeddedRedis

HERE = Path(__file__).parent
VENVS = HERE.parent / ".venv-peers"
REQUIRES = {
    "celery": ("celery[redis]==5.7.0", "hiredis==3.5.0"),
    "dramatiq": ("dramatiq[redis]==2.2.1", "hiredis==3.5.0"),
    "arq": ("arq==0.28.0", "hiredis==3.5.0", "uvloop==0.23.0"),
    "saq": ("saq[hiredis]==0.26.4", "typing-extensions==4.15.0", "uvloop==0.23.0"),
    "taskiq": ("taskiq==0.13.0", "taskiq-redis==1.2.4", "hiredis==3.5.0", "uvloop==0.23.0"),
    "ray_serve": ("ray[serve]==2.60.0", "uvloop==0.23.0"),
}
START_DEADLINE_S = 60.0
# Time between a worker's first connection and the moment it takes jobs. SAQ treats a job that is
# older than its worker as lost.
SETTLE_S = 1.0
LOOK_S = 0.05


class PeerError(Exception):
    """A peer cannot be measured."""


@dataclass(frozen=True)
class Answer:
    """The result of one command to a client."""

    jobs_per_s: float
    cpu_ms_per_job: float
    took_ms: list[float]


def install(name: str) -> None:
    """Create a peer's venv if it does not exist.

    Raises:
        PeerError: it cannot be installed.
    """
    folder, wanted = VENVS / name, "\n".join(REQUIRES[name])
    ready = folder / ".ready"
    if ready.exists() and ready.read_text(encoding="utf-8") == wanted:
        return
    for command in (
        (sys.executable, "-m", "venv", "--clear", str(folder)),
        (python_of(name), "-m", "pip", "install", "--quiet", "--no-input", *REQUIRES[name]),
    ):
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            raise PeerError(
                f"{name} cannot be installed into {folder} ({', '.join(REQUIRES[name])}):\n"
                f"{done.stderr.strip()}\n"
                "It is downloaded from the package index that pip is configured for. To measure "
                "without it, name the others: --only PEER ..."
            )
    ready.write_text(wanted, encoding="utf-8")


def python_of(name: str) -> str:
    """The Python of a peer's venv."""
    return str(VENVS / name / "bin" / "python")


class Peer:
    """A running peer."""

    def __init__(self, name: str, client: Child, roots: list[int]) -> None:
        self._name = name
        self._client = client
        self._roots = [*roots, client.pid]

    def measure(self, *words: object) -> Answer:
        """Run a command; returns what its client saw and the CPU of all its processes.

        Raises:
            PeerError: its client failed.
        """
        before = tree_cpu_s(self._roots)
        try:
            answer = self._client.ask(*words)
        except RuntimeError as error:
            raise PeerError(f"the client of {self._name} failed: {error}; see above") from error
        cpu_s = tree_cpu_s(self._roots) - before
        took_ms = list(map(float, answer["took_ms"]))
        return Answer(
            jobs_per_s=len(took_ms) / answer["took_s"],
            cpu_ms_per_job=cpu_s * 1000 / max(1, len(took_ms)),
            took_ms=took_ms,
        )


@contextmanager
def peer(name: str) -> Iterator[Peer]:
    """A peer that has done its first job.

    Raises:
        PeerError: its worker did not start.
    """
    python, module = python_of(name), name if name == "ray_serve" else f"{name}_"
    with EmbeddedRedis() as redis:
        environ = {
            "PATH": f"{Path(python).parent}:{os.environ['PATH']}",
            "HOME": os.environ.get("HOME", "/"),
            "PYTHONPATH": str(HERE),
            "PEERS_REDIS_URL": redis.url,
            # Without it Celery refuses pickle as root.
            "C_FORCE_ROOT": "1",
            "RAY_USAGE_STATS_ENABLED": "0",
            # https://docs.ray.io/en/latest/serve/advanced-guides/performance.html
            "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
        }
        show = f"import json, peers_of.{module} as peer; print(json.dumps(peer.WORKERS))"
        shown = subprocess.run([python, "-c", show], env=environ, capture_output=True, text=True)
        if shown.returncode:
            raise PeerError(f"{name} cannot be imported:\n{shown.stderr.strip()}")
        with workers(name, json.loads(shown.stdout), environ, redis.url) as pids:
            client = Child("peers_client.py", module, python=python, environ=environ)
            try:
                yield Peer(name, client, [*pids, redis.pid])
            finally:
                client.end()


@contextmanager
def workers(
    name: str, commands: list[list[str]], environ: dict[str, str], redis_url: str
) -> Iterator[list[int]]:
    """The workers of a peer, connected to Redis, each in a process group of its own."""
    with tempfile.TemporaryFile("w+") as said:
        running = [
            subprocess.Popen(
                command,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=said,
                start_new_session=True,
            )
            for command in commands
        ]
        try:
            if running and not _found_redis(running, redis_url):
                said.seek(0)
                raise PeerError(f"a worker of {name} did not start:\n{said.read()[-2000:]}")
            yield [each.pid for each in running]
        finally:
            for each in running:
                each.send_signal(signal.SIGTERM)
            for each in running:
                _await_end(each)


def _found_redis(running: list["subprocess.Popen[bytes]"], redis_url: str) -> bool:
    deadline = time.monotonic() + START_DEADLINE_S
    with Redis.from_url(redis_url) as redis:
        while redis.info("clients")["connected_clients"] <= len(running):
            if time.monotonic() > deadline or any(each.poll() is not None for each in running):
                return False
            time.sleep(LOOK_S)
    time.sleep(SETTLE_S)
    return True


def _await_end(process: "subprocess.Popen[bytes]") -> None:
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def tree_cpu_s(roots: list[int]) -> float:
    """CPU that processes and all their descendants have used so far."""
    used: dict[int, float] = {}
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        pid = int(stat.parent.name)
        # Its own time and that of its ended children.
        used[pid] = sum(map(int, fields[11:15])) / TICKS
        children.setdefault(int(fields[1]), []).append(pid)
    total, todo = 0.0, list(roots)
    while todo:
        pid = todo.pop()
        total += used.get(pid, 0.0)
        todo += children.get(pid, [])
    return total
