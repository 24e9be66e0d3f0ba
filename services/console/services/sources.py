"""Everything that the console reads from the services, and how fresh it is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from lingua_scheduler.services.console.services.actions import Actions
from lingua_scheduler.services.console.services.calls import ServiceCalls
from lingua_scheduler.services.console.services.cell_reads import CellReads
from lingua_scheduler.services.console.services.fleet_watch import FleetWatch
from lingua_scheduler.services.console.services.instance_poll import InstancePoll
from lingua_scheduler.services.console.services.job_poll import JobPoll
from lingua_scheduler.services.console.services.job_reads import JobReads
from lingua_scheduler.services.console.services.node_reads import NodeReads
from lingua_scheduler.services.console.services.problems import Problems
from lingua_scheduler.services.console.services.quiet_jobs import QuietJobs
from lingua_scheduler.services.console.services.room_reads import RoomReads
from lingua_scheduler.services.console.services.session_reads import SessionReads
from lingua_scheduler.services.console.store.fleet import Fleet
from lingua_scheduler.services.console.store.instances import POINT_WINDOW_S, InstanceBoard
from lingua_scheduler.services.console.store.jobs import MAX_JOBS, JobIndex
from lingua_scheduler.services.console.store.matrix import MatrixCache
from lingua_scheduler.services.console.store.series import INTERVAL_S, SeriesBoard

SERIES = (
    "jobs_per_s",
    "queue",
    "p50_ms",
    "p99_ms",
    "retries_per_s",
    "missing_per_s",
    "sessions",
    "free",
    "slots",
)


def wall_ms() -> int:
    """The time."""
    return time.time_ns() // 1_000_000


class Sources:
    """The store, and what keeps it up to date.

    Args:
        calls: the way to the services; closed with this.
        max_jobs: how many recent jobs are kept.
        quiet_ms: an active job that has not changed for this long may have been abandoned.
        now_ms: the time.
    """

    def __init__(
        self,
        calls: ServiceCalls,
        *,
        max_jobs: int = MAX_JOBS,
        quiet_ms: int = 300_000,
        now_ms: Callable[[], int] = wall_ms,
    ) -> None:
        self.now_ms = now_ms
        self.problems = Problems(now_ms)
        self.fleet = Fleet()
        self.matrices = MatrixCache(self.fleet)
        self.jobs = JobIndex(max_jobs)
        self.instances = InstanceBoard()
        self.series = SeriesBoard(SERIES)
        self.fleet_watch = FleetWatch(
            calls=calls, fleet=self.fleet, problems=self.problems, now_ms=now_ms
        )
        self.instance_poll = InstancePoll(calls=calls, board=self.instances, problems=self.problems)
        self.sessions = SessionReads(calls=calls, problems=self.problems)
        self.rooms = RoomReads(calls=calls, problems=self.problems)
        self.job_reads = JobReads(calls=calls, now_ms=now_ms)
        self.job_poll = JobPoll(
            calls=calls,
            jobs=self.jobs,
            quiet=QuietJobs(reads=self.job_reads, jobs=self.jobs, quiet_ms=quiet_ms, now_ms=now_ms),
            problems=self.problems,
            now_ms=now_ms,
        )
        self.node_reads = NodeReads(calls=calls)
        self.cell_reads = CellReads(calls=calls)
        self.actions = Actions(calls=calls)
        self._calls = calls

    async def run(self, *, with_jobs: bool = True) -> None:
        """Keeps the store up to date until cancelled.

        Args:
            with_jobs: whether to follow jobs; the overview does without.
        """
        async with asyncio.TaskGroup() as group:
            group.create_task(self.fleet_watch.run())
            group.create_task(self.instance_poll.run())
            group.create_task(self._tick())
            if with_jobs:
                group.create_task(self.job_poll.run())

    async def close(self) -> None:
        """Closes the way to the services."""
        await self._calls.close()

    async def _tick(self) -> None:
        """Adds a point to all series at each interval."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            # After a stall there is one point, not many at once.
            due = max(due + INTERVAL_S, loop.time())
            await asyncio.sleep(due - loop.time())
            self.add_point()

    def add_point(self) -> None:
        """Adds a point to all series. A source that has a problem has no value."""
        now_ms = self.now_ms()
        self.fleet.settle(now_ms)
        self.fleet.tick(now_ms)
        values: dict[str, float | None] = {}
        if self.fleet.is_known and self.problems.get("fleet") is None:
            values.update(free=self.fleet.free, slots=self.fleet.slots)
        if self.instances.as_of_ms and self.problems.get("instances") is None:
            rates = self.instances.rates(POINT_WINDOW_S)
            values.update(
                queue=self.instances.total("jobs_waiting"),
                sessions=self.instances.total("sessions"),
                jobs_per_s=_rounded(rates.jobs_per_s),
                retries_per_s=_rounded(rates.retries_per_s),
                missing_per_s=_rounded(rates.missing_per_s),
                p50_ms=_rounded(rates.p50_ms, 0),
                p99_ms=_rounded(rates.p99_ms, 0),
            )
        self.series.add(now_ms, values)


def _rounded(value: float | None, digits: int = 2) -> float | None:
    return None if value is None else round(value, digits)
