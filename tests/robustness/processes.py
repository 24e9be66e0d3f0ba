"""The processes of a world: services whose clock can be moved, and nodes that keep a history."""

import hashlib
from pathlib import Path
from typing import Any

from lingua_scheduler.services.runtime.redis.scripts import load_scripts, packaged_root
from tests.robustness.history import NodeHistory
from tests.support.node_process import NodeProcess
from tests.support.scheduler import SETTINGS
from tests.support.services import RUNNER

CLOCK = Path(__file__).with_name("clock")

# The scripts use the clock of this folder, which a test can move. At SIGUSR1 a process writes down
# how many tasks it has.
CLOCK_RUNNER = f"""
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


def sha_of(script: str) -> bytes:
    """What the services call a script when they send it to Redis."""
    source = load_scripts([CLOCK, packaged_root()])[script]
    return hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest().encode()


_PROGRAM = "tests.robustness.traffic.node_program"


class WorldNode(NodeProcess):
    """A node that takes whatever it is given, and records it.

    Attributes:
        slots: jobs that it says it can do at once.
    """

    def __init__(self, node_id: str, *, slots: int, dispatchers: str = "") -> None:
        super().__init__(node_id, program=_PROGRAM, dispatchers=dispatchers, slots=slots)
        self.slots = slots

    def history(self, since: float = 0.0) -> NodeHistory:
        """Its records since a time."""
        records = [each for each in self.told() if each["t"] >= since]
        return NodeHistory(node=self.node_id, slots=self.slots, records=records)


def settings(**more: Any) -> dict[str, Any]:
    """Settings of all services: losses heal within seconds, and a busy machine is no fault."""
    return {
        **SETTINGS,
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
        # More than a listener takes to find out that its gateway is gone, and to join another one.
        "room_lease_ms": 8000,
        "room_resume_ms": 8000,
        **more,
    }
