"""The processes of a world: services whose clock can be moved, nodes that can be told to err."""

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

from tests.e2e import scheduler_processes
from tests.robustness.history import NodeHistory, read_lines
from tests.support.nursery import nursery
from tests.support.service_process import RUNNER, START_S, ServiceProcess, WatchedProcess

CLOCK = Path(__file__).with_name("clock")

# The scripts get the clock of this folder, which a test can move. At SIGUSR1 a process writes down
# how many tasks it has.
_RUNNER = f"""
import asyncio, os, signal
from pathlib import Path
def tell(*_):
    Path(os.environ["TEST_TASKS"], str(os.getpid())).write_text(str(len(asyncio.all_tasks())))
signal.signal(signal.SIGUSR1, tell)
from lingua_scheduler.services.runtime import service_process
from lingua_scheduler.services.runtime.redis import scripts
load = scripts.load_scripts
service_process.load_scripts = lambda: load([Path({str(CLOCK)!r}), scripts.packaged_root()])
{RUNNER}"""

_NODE = "from tests.robustness.traffic import node_program; node_program.main()"


class PoolService(scheduler_processes.PoolService):
    """A pool service on the clock of the tests."""

    runner = _RUNNER


class Dispatcher(scheduler_processes.Dispatcher):
    """A dispatcher on the clock of the tests."""

    runner = _RUNNER


class Gateway(scheduler_processes.Gateway):
    """A session gateway on the clock of the tests."""

    runner = _RUNNER


class NodeProcess(WatchedProcess):
    """A recording node; it can be started again, and told to misbehave.

    Attributes:
        node_id: its name.
        slots: jobs that it says it can do at once.
    """

    def __init__(self, node_id: str, *, slots: int) -> None:
        super().__init__(node_id)
        self.node_id = node_id
        self.slots = slots
        self.dispatchers = ""
        self._make_folder("node")
        self._file("err").touch()

    def start(self) -> None:
        """Starts the process; it is not connected yet."""
        env = {
            **os.environ,
            "NODE_ID": self.node_id,
            "NODE_SLOTS": str(self.slots),
            "NODE_DISPATCHERS": self.dispatchers,
            "NODE_RECORDS": str(self._file("records")),
            "NODE_ORDERS": str(self._file("orders")),
        }
        out, err = self._file("out"), self._file("err")
        self._process = nursery().fork(_NODE, env=env, out=out, err=err)

    def tell(self, **orders: int) -> None:
        """From now on it does this, and nothing that it was told before."""
        new = self._file("orders.new")
        new.write_text(json.dumps(orders))
        new.rename(self._file("orders"))

    def history(self, since: float = 0.0) -> NodeHistory:
        """What it has written down since then."""
        records = [each for each in read_lines(self._file("records")) if each["t"] >= since]
        return NodeHistory(node=self.node_id, slots=self.slots, records=records)

    def wait_connected(self, since: float, within: float = START_S) -> None:
        """Returns when it has been taken in by a dispatcher after that time."""
        deadline = time.monotonic() + within
        while not self.history(since).of("connected"):
            assert self.process.poll() is None, f"{self.node_id} ended:\n{self.log()}"
            assert time.monotonic() < deadline, f"{self.node_id} is not connected:\n{self.log()}"
            time.sleep(0.03)

    async def restart(self) -> None:
        """Starts it again after it has ended; returns when it is connected."""
        since = time.monotonic()
        self.start()
        await asyncio.to_thread(self.wait_connected, since)


Process = ServiceProcess | NodeProcess


def settings(**more: Any) -> dict[str, Any]:
    """Of all services: all that is lost heals within seconds, and a busy machine is no fault."""
    return {
        **scheduler_processes.SETTINGS,
        "node_heartbeat_ms": 500,
        # As by default, more than it takes to find out that a pool service does not answer
        # (redis_timeout_ms + 600 ms): nodes are not out before their dispatcher has another one.
        "heartbeat_stale_ms": 3500,
        "heartbeat_batch_ms": 200,
        "ack_timeout_ms": 2000,
        "reservation_ttl_ms": 4000,
        "job_timeout_ms": 6000,
        "running_lease_ms": 8000,
        # More than it takes to start both dispatchers anew, as by default.
        "node_reconnect_grace_ms": 6000,
        "affinity_wait_ms": 20_000,
        "affinity_away_ms": 7000,
        "queue_wait_ms": 8000,
        "max_retry": 4,
        "redis_timeout_ms": 1500,
        "drain_grace_ms": 10_000,
        "eject_ms": 2000,
        "eject_max_ms": 4000,
        **more,
    }
