"""Follows the changes of all jobs."""

import asyncio
from collections.abc import Callable

from lingua_scheduler.services.console.services.calls import ServiceCalls
from lingua_scheduler.services.console.services.polling import poll
from lingua_scheduler.services.console.services.problems import Problems
from lingua_scheduler.services.console.services.quiet_jobs import QuietJobs
from lingua_scheduler.services.console.store.jobs import JobIndex
from lingua_scheduler.v1 import dispatcher_pb2

EVERY_S = 1.0
# Changes applied before others get a turn: about a millisecond.
_STEP = 100


class JobPoll:
    """Applies what `ListJobChanges` returns to the index, from the oldest change that is kept.

    Args:
        calls: makes the calls.
        jobs: is kept up to date.
        quiet: ends jobs whose end is not in the log.
        problems: get a problem of "jobs" while the dispatcher cannot be asked.
        now_ms: the time.
    """

    def __init__(
        self,
        *,
        calls: ServiceCalls,
        jobs: JobIndex,
        quiet: QuietJobs,
        problems: Problems,
        now_ms: Callable[[], int],
    ) -> None:
        self._calls = calls
        self._jobs = jobs
        self._quiet = quiet
        self._problems = problems
        self._now_ms = now_ms
        self._cursor = ""
        self.is_known = False
        """Whether all changes have been read at least once."""

    async def run(self) -> None:
        """Follows the jobs until cancelled."""
        await poll("jobs", self._ask, every_s=EVERY_S, problems=self._problems)

    async def _ask(self) -> bool:
        request = dispatcher_pb2.ListJobChangesRequest(cursor=self._cursor)
        response = await self._calls.call("dispatcher", "ListJobChanges", request)
        for count, change in enumerate(response.changes, 1):
            self._jobs.apply(change)
            if count % _STEP == 0:
                await asyncio.sleep(0)
        if response.gap and self._cursor:
            self._jobs.note_gap(self._now_ms())
        has_moved = response.cursor != self._cursor
        self._cursor = response.cursor
        self.is_known = self.is_known or not response.more
        if self.is_known:
            await self._quiet.ask()
        # A service that always has more, and nothing new, is not asked without a pause.
        return bool(response.more and has_moved)
