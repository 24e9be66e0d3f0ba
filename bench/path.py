"""The whole path: client stream, gateway, dispatcher, pool, Redis, node, and back.

    make bench              a table
    make bench ARGS=--json  one JSON object

Each service is one process, and so are the clients and the nodes. A job is an utterance of 32 KiB;
nodes answer at once, so the benchmark measures only the scheduler and gRPC. The hangover is off,
because the scheduler waits for it on purpose.
"""

import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from machine import machine

from lingua_scheduler.cli.up.local_scheduler import LocalScheduler

HERE = Path(__file__).parent
SESSIONS = 64
NODES, SLOTS = 8, 64
WARM_S, SATURATE_S, STEADY_S = 3.0, 8.0, 8.0
PEERS_RATE = 200.0
TICKS = os.sysconf("SC_CLK_TCK")
PLACED = re.compile(r'lingua_dispatcher_placed_total\{where="(\w+)"\} (\S+)')
ENVIRONMENT = {
    **{f"LINGUA_{name}_LISTEN": "127.0.0.1:0" for name in ("POOL", "DISPATCHER", "GATEWAY")},
    **{f"LINGUA_{name}_METRICS_LISTEN": "" for name in ("POOL", "DISPATCHER", "GATEWAY")},
    "LINGUA_GATEWAY_WEB_LISTEN": "",
    "LINGUA_LOG_LEVEL": "warning",
    "LINGUA_HANGOVER_MANUAL_MS": "0",
    "LINGUA_PADDING_MANUAL_MS": "0",
}

# One wake-up less per message, as docs/nodes.md and docs/clients.md recommend (decision 23).
GRPC_ENVIRONMENT = {"GRPC_EXPERIMENTS": "-event_engine_client,-event_engine_listener"}


class Child:
    """A process of this benchmark, which prints READY."""

    def __init__(
        self,
        program: str,
        *arguments: str,
        python: str = sys.executable,
        environ: dict[str, str] | None = None,
    ) -> None:
        self.process = subprocess.Popen(
            [python, str(HERE / program), *arguments],
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        if self.line() != "READY":
            self.process.kill()
            raise RuntimeError(f"{program} did not start")

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def line(self) -> str:
        """The next line of its output."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def ask(self, *words: object) -> dict[str, Any]:
        """Send a command; returns the answer."""
        assert self.process.stdin is not None
        print(*words, file=self.process.stdin, flush=True)
        answer = self.line()
        if not answer:
            raise RuntimeError(f"{words[0]}: the process has ended")
        return dict(json.loads(answer))

    def end(self) -> str:
        """End it; returns the rest of its output."""
        self.process.send_signal(signal.SIGTERM)
        rest, _ = self.process.communicate(timeout=30)
        return str(rest)


class Parts:
    """All processes and their CPU."""

    def __init__(self, scheduler: LocalScheduler, nodes: Child, clients: Child) -> None:
        self.nodes = nodes
        self.clients = clients
        self.redis_url = scheduler.redis_url
        self._dispatchers = [each for each in scheduler.services if each.service == "dispatcher"]
        self.pids = {each.name: each.pid for each in scheduler.processes}
        self.pids |= {"redis": scheduler.redis_pid, "nodes": nodes.pid, "clients": clients.pid}

    def placed(self) -> Counter[str]:
        """Attempts that the dispatchers have placed here and elsewhere, by their metrics."""
        counts = Counter[str]()
        for each in self._dispatchers:
            with urllib.request.urlopen(f"http://{each.metrics}/metrics", timeout=30) as answer:
                text = answer.read().decode()
            for where, count in PLACED.findall(text):
                counts[where] += int(float(count))
        return counts

    def measure(self, *words: object) -> dict[str, Any]:
        """The clients' answer, with the CPU milliseconds per job of every process."""
        before = {name: cpu_s(pid) for name, pid in self.pids.items()}
        answer = self.clients.ask(*words)
        jobs = max(1, answer["jobs"])
        answer["cpu_ms"] = dict.fromkeys(map(kind, self.pids), 0.0)
        for name, pid in self.pids.items():
            answer["cpu_ms"][kind(name)] += (cpu_s(pid) - before[name]) * 1000 / jobs
        answer["jobs_per_s"] = answer["jobs"] / answer["took_s"]
        return answer


def kind(name: str) -> str:
    """The service of this instance."""
    return name.partition("-")[0]


@contextmanager
def path(
    sessions: int,
    nodes: int,
    slots: int = SLOTS,
    instances: int = 1,
    settings: Mapping[str, str] = MappingProxyType({}),
    split: bool = True,
) -> Iterator[Parts]:
    """The scheduler with clients and nodes, spread over all instances.

    With `split` each service has a process of its own; otherwise `all` has one of each.
    """
    environ = {key: value for key, value in os.environ.items() if not key.startswith("LINGUA_")}
    environ |= {**ENVIRONMENT, **settings}
    with LocalScheduler(environ=environ, instances=instances, split=split) as scheduler:
        dispatchers, gateways = scheduler.addresses("dispatcher"), scheduler.addresses("gateway")
        ours = GRPC_ENVIRONMENT | os.environ
        nodes_are = ("path_node.py", dispatchers, f"--count={nodes}", f"--slots={slots}")
        with (
            child(*nodes_are, environ=ours) as node,
            child("path_client.py", gateways, f"--sessions={sessions}", environ=ours) as client,
        ):
            yield Parts(scheduler, node, client)


@contextmanager
def child(
    program: str,
    *arguments: str,
    python: str = sys.executable,
    environ: dict[str, str] | None = None,
) -> Iterator[Child]:
    """A child process that is ended on exit."""
    one = Child(program, *arguments, python=python, environ=environ)
    try:
        yield one
    finally:
        if one.process.poll() is None:
            one.end()


def cpu_s(pid: int) -> float:
    """CPU that a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def rss_kib(pid: int) -> int:
    """Resident memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])


def percentiles(values: list[float]) -> dict[str, float]:
    """p50 and p99."""
    if len(values) < 2:
        return {"p50_ms": 0.0, "p99_ms": 0.0}
    cuts = statistics.quantiles(values, n=100)
    return {"p50_ms": round(cuts[49], 3), "p99_ms": round(cuts[98], 3)}


def end_to_end(rows: list[list[Any]]) -> dict[str, float]:
    """Time from an utterance's chunk to its result, at the client."""
    return percentiles([(heard - sent) / 1e6 for _, sent, heard in rows])


def overhead(rows: list[list[Any]], node_rows: str) -> dict[str, dict[str, float]]:
    """Time before and after the node, by the clocks of client and node."""
    at_node = {}
    for line in node_rows.splitlines():
        if line:
            job, *times = line.split()
            at_node[job] = int(times[0]), int(times[1])
    there, back = [], []
    for job, sent, heard in rows:
        assigned, answered = at_node[job]
        there.append((assigned - sent) / 1e6)
        back.append((heard - answered) / 1e6)
    return {"to_node": percentiles(there), "to_client": percentiles(back)}


def memory() -> dict[str, float]:
    """KiB per session in the gateway, and per node in the dispatcher."""
    few, many = 50, 550
    grown: dict[str, list[int]] = {"gateway": [], "dispatcher": []}
    for count in (few, many):
        with path(count, count, slots=2) as one:
            one.measure("steady", 100.0, count / 50)
            for name, values in grown.items():
                values.append(rss_kib(one.pids[name]))
    return {
        "session_kib": round((grown["gateway"][1] - grown["gateway"][0]) / (many - few), 1),
        "node_kib": round((grown["dispatcher"][1] - grown["dispatcher"][0]) / (many - few), 1),
    }


def run(*, with_memory: bool = True) -> dict[str, Any]:
    """All measurements as one object."""
    with path(SESSIONS, NODES) as one:
        one.measure("saturate", WARM_S)
        full = one.measure("saturate", SATURATE_S)
        half = one.measure("steady", full["jobs_per_s"] / 2, STEADY_S)
        slow = one.measure("steady", PEERS_RATE, STEADY_S)
        node_rows = one.nodes.end()
    cpu = {name: round(ms, 3) for name, ms in full["cpu_ms"].items()}
    ours = {name: ms for name, ms in cpu.items() if name not in ("clients", "nodes")}
    result: dict[str, Any] = {
        "jobs_per_s": round(full["jobs_per_s"], 1),
        "cpu_ms_per_job": round(sum(cpu.values()), 3),
        "scheduler_cpu_ms_per_job": round(sum(ours.values()), 3),
        "cpu_ms_per_job_by_process": cpu,
        "cpu_ms_per_job_at_half": {name: round(ms, 3) for name, ms in half["cpu_ms"].items()},
        **end_to_end(half["rows"]),
        "overhead_at_half": overhead(half["rows"], node_rows),
        "at_200_jobs_per_s": end_to_end(slow["rows"]),
    }
    if with_memory:
        result["memory"] = memory()
    return result


def table(result: dict[str, Any]) -> str:
    """The table for terminals."""
    half = result["overhead_at_half"]
    lines = [
        f"{result['jobs_per_s']:.0f} jobs/s at saturation, "
        f"{result['cpu_ms_per_job']:.2f} ms of CPU per job:",
        *(f"  {name:<12}{ms:6.3f} ms" for name, ms in result["cpu_ms_per_job_by_process"].items()),
        "at half of that, p50 / p99 in ms:",
        f"  end to end    {result['p50_ms']:.2f} / {result['p99_ms']:.2f}",
        f"  to the node   {half['to_node']['p50_ms']:.2f} / {half['to_node']['p99_ms']:.2f}",
        f"  to the client {half['to_client']['p50_ms']:.2f} / {half['to_client']['p99_ms']:.2f}",
        "at 200 jobs/s, end to end: {p50_ms:.2f} / {p99_ms:.2f}".format(
            **result["at_200_jobs_per_s"]
        ),
    ]
    if "memory" in result:
        lines.append(
            "memory: {session_kib:.0f} KiB a session, {node_kib:.0f} KiB a node".format(
                **result["memory"]
            )
        )
    return "\n".join(lines)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="one JSON object")
    given = parser.parse_args()
    began = time.monotonic()
    result = run()
    if given.json:
        print(json.dumps({"machine": machine(), "path": result}, indent=2))
    else:
        print(table(result))
        print(f"{machine()}, {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
