"""The jobs that this instance is the home of, by id."""

import asyncio
from collections.abc import Callable, Iterator

from lingua_scheduler.services.dispatcher.home.job import Job
from lingua_scheduler.services.dispatcher.metrics import DispatcherMetrics


class JobRegistry:
    """Every job that is known here: those under way, and those that ended a short time ago."""

    def __init__(self, metrics: DispatcherMetrics) -> None:
        self._jobs: dict[str, Job] = {}
        self.get: Callable[[str], Job | None] = self._jobs.get
        """The job with an id, or None. Not a method: every report of a node calls it."""
        self._unsettled = 0
        self.idle = asyncio.Event()
        """Set while no job is under way and no result waits to be taken."""
        self.idle.set()
        metrics.jobs.set_function(lambda: len(self._jobs))

    def __iter__(self) -> Iterator[Job]:
        return iter(self._jobs.values())

    def add(self, job: Job) -> None:
        """Adds a job that begins."""
        self._jobs[job.job_id] = job
        self._unsettled += 1
        self.idle.clear()

    def settle(self, job: Job) -> None:
        """Marks a job as settled: it failed, or its result is safe. Called once for each job."""
        job.is_settled = True
        self._unsettled -= 1
        if self._unsettled == 0:
            self.idle.set()

    def remove(self, job: Job) -> None:
        """Forgets a job that is over."""
        del self._jobs[job.job_id]
