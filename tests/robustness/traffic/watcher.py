"""Asks each service for its health, again and again, and writes down how long the answers take.

A process of its own, so that the tests' other work does not delay it. It also asks a control: an
idle process with the same server, which shows what the machine and this process are to blame for.

Records, one JSON object a line, for each check: `who`, `took`, `ok`, and `cpu_s`, the CPU time that
the process used during the check.
"""

import asyncio
import json
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from lingua_scheduler.services.runtime.rpc.health import LIVENESS
from lingua_scheduler.services.runtime.rpc.server import GrpcServer
from tests.robustness.history import Silence
from tests.support.records import Record

CONTROL = "control"
EVERY_S = 0.1
# A check without an answer is given up after this, and the next one goes on counting.
CHECK_S = 120.0
# Shorter ones are not worth a record of their own.
SHORT_S = 0.25
_OPTIONS = (
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 200),
)
_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    """CPU time that a process has used; 0 if there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0.0
    # After the name, which may have spaces: user and system time are the 12th and 13th.
    fields = stat.rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


class Watcher:
    """Reads whom to watch from a file, which may change: `{name: [address, pid]}`."""

    def __init__(self, targets: Path, records: Path) -> None:
        self._targets = targets
        self._records = records.open("a", buffering=1)

    async def watch(self) -> None:
        """Until it is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for name in self._read():
                tasks.create_task(self._watch_one(name))

    async def _watch_one(self, name: str) -> None:
        address = self._read()[name][0]
        async with grpc.aio.insecure_channel(address, options=_OPTIONS) as channel:
            stub: Any = health_pb2_grpc.HealthStub(channel)
            while True:
                await self._check(name, stub)
                await asyncio.sleep(EVERY_S)

    async def _check(self, name: str, stub: Any) -> None:
        before = cpu_s(self._read()[name][1])
        sent, ok = time.monotonic(), True
        request = health_pb2.HealthCheckRequest(service=LIVENESS)
        try:
            await stub.Check(request, timeout=CHECK_S)
        except grpc.aio.AioRpcError:
            ok = False
        took = time.monotonic() - sent
        # That of a process that was started anew meanwhile is less than before.
        used = max(0.0, cpu_s(self._read()[name][1]) - before)
        told = {"t": sent, "who": name, "took": took, "ok": ok, "cpu_s": used}
        self._records.write(json.dumps(told) + "\n")

    def _read(self) -> dict[str, tuple[str, int]]:
        found: dict[str, tuple[str, int]] = json.loads(self._targets.read_text())
        return found


def silences(records: Sequence[Record]) -> list[Silence]:
    """What the records say of each process but the control, in the order of their beginnings."""
    control = [each for each in records if each["who"] == CONTROL]
    found: list[Silence] = []
    open_since: dict[str, float] = {}
    used: dict[str, float] = {}
    for each in sorted(records, key=lambda one: one["t"]):
        who = each["who"]
        since = open_since.setdefault(who, each["t"])
        used[who] = used.get(who, 0.0) + each["cpu_s"]
        if not each["ok"]:
            continue
        until, cpu = each["t"] + each["took"], used.pop(who)
        del open_since[who]
        if who != CONTROL and until - since > SHORT_S:
            machine = _longest(control, since, until)
            found.append(Silence(who, since, until, cpu, machine))
    return found


def _longest(control: Sequence[Record], since: float, until: float) -> float:
    """The longest check of the control that overlaps with a time."""
    return max(
        (
            each["took"]
            for each in control
            if each["t"] < until and each["t"] + each["took"] > since
        ),
        default=0.0,
    )


def watch() -> None:
    """Runs the watcher as the environment says, until SIGTERM."""
    watcher = Watcher(Path(os.environ["WATCH_TARGETS"]), Path(os.environ["WATCH_RECORDS"]))

    async def until_told() -> None:
        watching = asyncio.ensure_future(watcher.watch())
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, watching.cancel)
        await asyncio.gather(watching, return_exceptions=True)

    asyncio.run(until_told())


def control() -> None:
    """Runs a server that has nothing to do, until SIGTERM; prints its address."""

    async def serve() -> None:
        server = GrpcServer(
            listen="127.0.0.1:0",
            variable="LINGUA_POOL_LISTEN",
            services=[],
            instance_id=CONTROL,
            max_message_bytes=100_000,
            keepalive_time_ms=20_000,
            keepalive_timeout_ms=5000,
            drain_grace_ms=0,
        )
        print(await server.start(), flush=True)
        told = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
        await told.wait()
        await server.drain()

    asyncio.run(serve())
