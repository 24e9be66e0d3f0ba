"""The path beside other task queues, in one run, on one machine, with one payload.

    make bench-peers              a table
    make bench-peers ARGS=--json  one JSON object

Each peer runs a no-op job of 32 KiB with a worker started as its documents advise, on a Redis of
its own, of the same kind as ours (Ray has its own store). For each: jobs a second with 64 under
way, CPU milliseconds per job of everything that it runs, and the time from submission to result at
half of its own saturation and at 200 jobs a second. Peers are installed into `.venv-peers`, each
into a venv of its own: their requirements do not go together.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import path
from machine import machine
from path import PEERS_RATE, SATURATE_S, STEADY_S, TICKS, WARM_S, Child, percentiles

from lingua_scheduler.services.runtime.redis_server import EmbeddedRedis

HERE = Path(__file__).parent
START_S = 4.0
VENVS = HERE.parent / ".venv-peers"
REQUIRES = {
    "celery_": ("celery[redis]==5.7.0", "hiredis==3.5.0"),
    "dramatiq_": ("dramatiq[redis]==2.2.1", "hiredis==3.5.0"),
    "arq_": ("arq==0.28.0", "hiredis==3.5.0", "uvloop==0.23.0"),
    "saq_": ("saq[hiredis]==0.26.4", "typing-extensions==4.15.0", "uvloop==0.23.0"),
    "taskiq_": ("taskiq==0.13.0", "taskiq-redis==1.2.4", "hiredis==3.5.0", "uvloop==0.23.0"),
    "ray_serve": ("ray[serve]==2.60.0", "uvloop==0.23.0"),
}


def python_of(name: str) -> str:
    """The Python of a peer's venv, which is made if it is not there."""
    folder = VENVS / name
    python = folder / "bin" / "python"
    if not (folder / ".ready").exists():
        uv = Path(sys.executable).with_name("uv")
        quiet = [str(uv), "--quiet"]
        subprocess.run([*quiet, "venv", "--clear", "--python", sys.executable, folder], check=True)
        subprocess.run([*quiet, "pip", "install", "--python", python, *REQUIRES[name]], check=True)
        (folder / ".ready").touch()
    return str(python)


def tree_cpu_s(roots: list[int]) -> float:
    """What processes and all their descendants have used so far."""
    used: dict[int, float] = {}
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        pid = int(stat.parent.name)
        # Its own time and that of children which have ended.
        used[pid] = sum(map(int, fields[11:15])) / TICKS
        children.setdefault(int(fields[1]), []).append(pid)
    total, todo = 0.0, list(roots)
    while todo:
        pid = todo.pop()
        total += used.get(pid, 0.0)
        todo += children.get(pid, [])
    return total


@contextmanager
def worker(command: list[str], environ: dict[str, str]) -> Iterator[list[int]]:
    """A worker in a process group of its own, or none; gives its pid."""
    if not command:
        yield []
        return
    process = subprocess.Popen(
        command,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        # SAQ takes a job that is older than its worker for a lost one.
        time.sleep(START_S)
        yield [process.pid]
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def measure(name: str) -> dict[str, Any]:
    """One peer."""
    python = python_of(name)
    with EmbeddedRedis() as redis:
        environ = {
            "PATH": f"{Path(python).parent}:{os.environ['PATH']}",
            "HOME": os.environ.get("HOME", "/"),
            "PYTHONPATH": str(HERE),
            "PEERS_REDIS_URL": redis.url,
            # Celery refuses pickle as root otherwise.
            "C_FORCE_ROOT": "1",
            "RAY_USAGE_STATS_ENABLED": "0",
        }
        show = f"import json, peers_of.{name} as peer; print(json.dumps(peer.WORKER))"
        shown = subprocess.run(
            [python, "-c", show], env=environ, stdout=subprocess.PIPE, check=True
        )
        with worker(json.loads(shown.stdout), environ) as pids:
            client = Child("peers_client.py", name, python=python, environ=environ)
            try:
                client.ask("saturate", WARM_S)
                before = tree_cpu_s([*pids, client.pid, redis.pid])
                full = client.ask("saturate", SATURATE_S)
                cpu = tree_cpu_s([*pids, client.pid, redis.pid]) - before
                jobs = len(full["took_ms"])
                jobs_per_s = jobs / full["took_s"]
                half = client.ask("steady", jobs_per_s / 2, STEADY_S)
                slow = client.ask("steady", min(PEERS_RATE, 0.9 * jobs_per_s), STEADY_S)
            finally:
                client.end()
    return {
        "jobs_per_s": round(jobs_per_s, 1),
        "cpu_ms_per_job": round(cpu * 1000 / jobs, 3),
        **percentiles(half["took_ms"]),
        "at_200_jobs_per_s": percentiles(slow["took_ms"]),
    }


def run(names: list[str]) -> dict[str, Any]:
    """The path and the peers, with each peer beside the best."""
    result: dict[str, Any] = {"path": path.run(with_memory=False)}
    for name in names:
        result[name.rstrip("_")] = measure(name)
        print(f"{name.rstrip('_')}: {result[name.rstrip('_')]}", file=sys.stderr)
    best_rate = max(result[name.rstrip("_")]["jobs_per_s"] for name in names)
    best_p99 = min(result[name.rstrip("_")]["p99_ms"] for name in names)
    best_slow = min(result[name.rstrip("_")]["at_200_jobs_per_s"]["p99_ms"] for name in names)
    for entry in result.values():
        entry["throughput_ratio"] = round(entry["jobs_per_s"] / best_rate, 3)
        entry["p99_ratio"] = round(entry["p99_ms"] / best_p99, 3)
        slow = entry["at_200_jobs_per_s"]
        slow["p99_ratio"] = round(slow["p99_ms"] / best_slow, 3)
    return result


def main() -> None:
    """Runs it and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--only", nargs="*", choices=sorted(REQUIRES), default=list(REQUIRES))
    given = parser.parse_args()
    result = run(given.only)
    if given.json:
        print(json.dumps({"machine": machine(), **result}, indent=2))
        return
    print(f"{'':12}{'jobs/s':>8}{'CPU ms':>8}{'p50':>8}{'p99':>8}{'p99 at 200/s':>14}")
    for name, row in result.items():
        print(
            f"{name:12}{row['jobs_per_s']:8.0f}{row['cpu_ms_per_job']:8.2f}{row['p50_ms']:8.1f}"
            f"{row['p99_ms']:8.1f}{row['at_200_jobs_per_s']['p99_ms']:14.1f}"
        )
    print(machine())


if __name__ == "__main__":
    main()
