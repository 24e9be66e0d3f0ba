"""Jobs that the index has as active, but that have not changed for longer than any job takes."""

from collections.abc import Callable

from lingua_scheduler.services.console.services.job_reads import JobReads
from lingua_scheduler.services.console.store.jobs import OVER, IndexedJob, JobIndex, state_of
from lingua_scheduler.services.runtime.errors import JobNotFoundError
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2

EVERY_MS = 10_000
# Jobs that are asked for at a time, and how long after that one is asked for again.
AT_ONCE = 20
AGAIN_MS = 60_000


class QuietJobs:
    """Asks how such jobs are.

    If the dispatcher of a job dies, and no other takes the job up, nothing writes its end to the
    log. Its record tells that it was abandoned.

    Args:
        reads: read the records.
        jobs: the index.
        quiet_ms: a job that has not changed for this long may be abandoned.
        now_ms: the time.
    """

    def __init__(
        self, *, reads: JobReads, jobs: JobIndex, quiet_ms: int, now_ms: Callable[[], int]
    ) -> None:
        self._reads = reads
        self._jobs = jobs
        self._quiet_ms = quiet_ms
        self._now_ms = now_ms
        self._next_ms = 0
        # When jobs that were still active were asked for.
        self._asked_ms: dict[str, int] = {}

    async def ask(self) -> None:
        """Asks for some of them, unless it did so a moment ago. Raises LinguaError."""
        now_ms = self._now_ms()
        if now_ms < self._next_ms:
            return
        self._next_ms = now_ms + EVERY_MS
        recent = {name: at for name, at in self._asked_ms.items() if at > now_ms - AGAIN_MS}
        self._asked_ms = recent
        due = (job for job in self._jobs.quiet(now_ms - self._quiet_ms) if job.job_id not in recent)
        for job in [job for job, _ in zip(due, range(AT_ONCE), strict=False)]:
            try:
                record = await self._reads.get(job.job_id)
            except JobNotFoundError:
                # It was not renewed for as long as records are kept.
                self._jobs.apply(_end(job, common_pb2.ERROR_REASON_JOB_NOT_FOUND))
                continue
            if state_of(record.state) in OVER:
                self._jobs.apply(_end_of_record(job, record))
            else:
                self._asked_ms[job.job_id] = now_ms


def _end(job: IndexedJob, error: common_pb2.ErrorReason.ValueType) -> dispatcher_pb2.JobChange:
    return dispatcher_pb2.JobChange(
        job_id=job.job_id,
        state=common_pb2.JOB_STATE_FAILED,
        changed_ms=job.changed_ms,
        error=error,
    )


def _end_of_record(job: IndexedJob, record: dispatcher_pb2.Job) -> dispatcher_pb2.JobChange:
    return dispatcher_pb2.JobChange(
        job_id=job.job_id,
        state=record.state,
        changed_ms=max(job.changed_ms, record.updated_ms),
        error=record.error.reason,
        result_kind=record.result_kind,
    )
