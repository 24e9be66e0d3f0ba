"""The records of single jobs, read while somebody asks for them."""

import asyncio
from collections.abc import Callable, Iterable
from math import inf

from lingua_scheduler.services.console.services.calls import ServiceCalls
from lingua_scheduler.services.console.services.kept import Kept
from lingua_scheduler.services.console.store.jobs import OVER, state_of
from lingua_scheduler.services.runtime.errors import DependencyDownError, LinguaError
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2

_KEEP_S = 2.0
# The last step of a job, the delivery of its result, is recorded a moment after its end.
_SETTLE_MS = 30_000
# A record has up to 16 KiB of steps, usually 1 KiB.
_KEPT_JOBS = 2000
# Calls for one page of utterances at the same time.
_AT_ONCE = 8


class JobReads:
    """Reads job records: what the index does not have, such as steps. Never any result.

    Args:
        calls: makes the calls.
        now_ms: the time.
    """

    def __init__(self, *, calls: ServiceCalls, now_ms: Callable[[], int]) -> None:
        self._calls = calls
        self._now_ms = now_ms
        self._jobs = Kept(self._get, keep_s=self._keep_s, most=_KEPT_JOBS)
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def get(self, job_id: str) -> dispatcher_pb2.Job:
        """One job. Raises LinguaError."""
        return await self._jobs.get(job_id)

    async def get_all(self, job_ids: Iterable[str]) -> dict[str, dispatcher_pb2.Job]:
        """Those of these jobs that can be read, by id. If the dispatcher is away, it gives up."""
        found: dict[str, dispatcher_pb2.Job] = {}
        left = list(job_ids)
        is_away = False
        while left and not is_away:
            now, left = left[:_AT_ONCE], left[_AT_ONCE:]
            for job in await asyncio.gather(*map(self._try, now)):
                if isinstance(job, dispatcher_pb2.Job):
                    found[job.job_id] = job
                is_away = is_away or isinstance(job, DependencyDownError)
        # What is kept costs no call.
        kept = ((each, self.known(each)) for each in left)
        return found | {name: job for name, job in kept if job is not None}

    def known(self, job_id: str) -> dispatcher_pb2.Job | None:
        """A job that was read before; reads nothing."""
        return self._jobs.known(job_id)

    async def _try(self, job_id: str) -> dispatcher_pb2.Job | LinguaError:
        try:
            return await self._jobs.get(job_id)
        except LinguaError as error:
            return error

    async def _get(self, job_id: str) -> dispatcher_pb2.Job:
        request = dispatcher_pb2.GetJobRequest(job_id=job_id)
        async with self._slots:
            response = await self._calls.call("dispatcher", "GetJob", request)
        job: dispatcher_pb2.Job = response.job
        return job

    def _keep_s(self, job: dispatcher_pb2.Job) -> float:
        if state_of(job.state) not in OVER:
            return _KEEP_S
        # A failed job may begin anew, but not after this time.
        is_settled = self._now_ms() - job.updated_ms > _SETTLE_MS
        is_done = any(step.kind == common_pb2.JobStep.KIND_DELIVER for step in job.steps)
        return inf if is_done or is_settled else _KEEP_S
