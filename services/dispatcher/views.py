"""Jobs as operators see them, from the record that all instances share.

If the home of a job was killed, the record has no end unless another dispatcher takes the job up.
Such a job is shown as failed once it can no longer have a result. That is not recorded: a gateway
may still submit it again.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence

from lingua_scheduler.services.dispatcher.job_cells import cell_of
from lingua_scheduler.services.dispatcher.job_log import OVER
from lingua_scheduler.services.runtime.contract.cell_names import cell_of_id
from lingua_scheduler.services.runtime.errors import DependencyDownError, JobNotFoundError
from lingua_scheduler.services.runtime.instances import Instances
from lingua_scheduler.services.runtime.redis.cells.cells import Cells
from lingua_scheduler.services.runtime.redis.record_pages import Record, read_record
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2

_STATES = {
    "reserved": common_pb2.JOB_STATE_DISPATCHED,
    "acked": common_pb2.JOB_STATE_ACKED,
    "retrying": common_pb2.JOB_STATE_RETRYING,
    "done": common_pb2.JOB_STATE_DONE,
    "failed": common_pb2.JOB_STATE_FAILED,
    "cancelled": common_pb2.JOB_STATE_CANCELLED,
    "unplaced": common_pb2.JOB_STATE_FAILED,
}
_TIMEOUT = common_pb2.ERROR_REASON_JOB_TIMEOUT
_RUNNING = frozenset(("reserved", "running"))
_WITHOUT_RESULT = frozenset(("failed", "cancelled", "unplaced"))
# Fields of a record that are serialized messages.
_BYTES = frozenset(("steps", "error"))


class JobViews:
    """Reads job records. A job whose id names no cell is not known."""

    def __init__(self, *, cells: Cells, instances: Instances, settings: Settings) -> None:
        self._cells = cells
        self._instances = instances
        self._instance_id = settings.instance_id
        self.quiet_ms = settings.reservation_ttl_ms + settings.job_timeout_ms
        """No attempt lasts longer than this without an update of the record."""

    async def get(self, job_id: str) -> dispatcher_pb2.Job:
        """One job. Raises JobNotFoundError."""
        record = await self._record(job_id)
        if not record:
            raise job_not_found(job_id)
        job = job_of(job_id, record)
        await self.mark_abandoned([job])
        timeline = common_pb2.JobSteps.FromString(record.get("steps", b""))
        job.steps.extend(timeline.steps)
        job.joined_utterances.extend(timeline.joined_utterances)
        job.turn_broken = timeline.turn_broken
        return job

    async def records(self, job_ids: Sequence[str]) -> list[dispatcher_pb2.Job | None]:
        """Jobs without their timelines, as recorded; None for those without a record.

        If there are several cells, the jobs of one that is away have no record.
        """
        found = await asyncio.gather(*map(self._record_if_up, job_ids))
        return [
            job_of(job_id, record) if record else None
            for job_id, record in zip(job_ids, found, strict=True)
        ]

    async def state(self, job_id: str) -> str:
        """The state of one job, as lua/lib/job.lua names it; "" if there is no such job."""
        state = await self._field(job_id, "state")
        return state.decode() if state else ""

    async def is_elsewhere(self, job_id: str) -> bool:
        """Whether another dispatcher is the home of a job."""
        home = await self._field(job_id, "home")
        return bool(home) and home.decode() != self._instance_id

    async def is_gateway_session(self, session_id: str) -> bool:
        """Whether a gateway has, or had until recently, a session with this id.

        Raises:
            InvalidMessageError: the id names a cell that does not exist.
        """
        cell = self._cells.first
        if not self._cells.one:
            cell = self._cells.of_number(cell_of_id(session_id), "job.session_id")
        return bool(await cell.link.command("EXISTS", f"{cell.prefix}:session:{session_id}"))

    async def _record(self, job_id: str) -> Record:
        cell = cell_of(self._cells, job_id)
        return {} if cell is None else await read_record(cell.link, f"{cell.prefix}:job:{job_id}")

    async def _record_if_up(self, job_id: str) -> Record:
        try:
            return await self._record(job_id)
        except DependencyDownError:
            if self._cells.one:
                raise
            return {}

    async def _field(self, job_id: str, name: str) -> bytes:
        if (cell := cell_of(self._cells, job_id)) is None:
            return b""
        found: bytes | None = await cell.link.command("HGET", f"{cell.prefix}:job:{job_id}", name)
        return found or b""

    def _is_quiet(self, job: dispatcher_pb2.Job) -> bool:
        """Whether the job is not over, but nothing has happened to it for a long time."""
        quiet_ms = time.time() * 1000 - job.updated_ms
        return job.state not in OVER and quiet_ms > self.quiet_ms

    async def mark_abandoned(self, jobs: Sequence[dispatcher_pb2.Job]) -> None:
        """Marks jobs as failed whose home is gone and that no other dispatcher took up."""
        quiet = [job for job in jobs if self._is_quiet(job)]
        alive = {self._instance_id}
        for home in {job.home_instance for job in quiet} - alive:
            if await self._instances.address_of(home):
                alive.add(home)
        for job in quiet:
            if job.home_instance not in alive:
                job.state = common_pb2.JOB_STATE_FAILED
                job.error.reason = common_pb2.ERROR_REASON_JOB_FAILED
                job.error.message = (
                    f"its dispatcher {job.home_instance!r} is gone, and no other took the job up"
                )


def job_not_found(job_id: str) -> JobNotFoundError:
    """The error for a job that is not known, or not visible to the caller."""
    return JobNotFoundError(f"there is no job {job_id!r}, or its record has expired")


def job_of(job_id: str, written: Record) -> dispatcher_pb2.Job:
    """A job from its record, as lua/lib/job.lua writes it; without its timeline."""
    record = {name: value.decode() for name, value in written.items() if name not in _BYTES}
    attempts = [
        _attempt(int(name.partition(":")[0]), record) for name in record if name.endswith(":node")
    ]
    attempts.sort(key=lambda attempt: attempt.attempt)
    error = None
    if "error" in written and record.get("state") in _WITHOUT_RESULT:
        error = common_pb2.Error.FromString(written["error"])
    elif record.get("state") == "failed" and attempts:
        # The end of its last attempt ended the job; the reason is still on its way to the record.
        timed_out = attempts[-1].outcome == "timed_out"
        reason = _TIMEOUT if timed_out else common_pb2.ERROR_REASON_JOB_FAILED
        message = f"attempt {attempts[-1].attempt} on {attempts[-1].node_id} {attempts[-1].outcome}"
        error = common_pb2.Error(reason=reason, message=message)
    return dispatcher_pb2.Job(
        job_id=job_id,
        job_key=record.get("key", ""),
        state=_STATES.get(record.get("state", ""), common_pb2.JOB_STATE_UNSPECIFIED),
        tenant=record.get("tenant", ""),
        session_id=record.get("session", ""),
        utterance_index=int(record.get("utterance", 0)),
        pair=common_pb2.LanguagePair(src=record.get("src", ""), tgt=record.get("tgt", "")),
        reason=common_pb2.FinalizeReason.ValueType(int(record.get("reason", 0))),
        home_instance=record.get("home", ""),
        created_ms=int(record.get("created_ms", 0)),
        updated_ms=int(record.get("updated_ms", 0)),
        attempts=attempts,
        error=error,
        result_kind=_result_kind(written),
    )


def _result_kind(written: Record) -> dispatcher_pb2.JobResult.Kind.ValueType:
    steps = written.get("steps", b"") if written.get("state") == b"done" else b""
    kind = common_pb2.JobSteps.FromString(steps).result_kind
    return dispatcher_pb2.JobResult.Kind.ValueType(kind)


def _attempt(number: int, record: Mapping[str, str]) -> dispatcher_pb2.AttemptRecord:
    state = record.get(f"{number}:state", "")
    return dispatcher_pb2.AttemptRecord(
        attempt=number,
        node_id=record[f"{number}:node"],
        reserved_ms=int(record.get(f"{number}:reserved_ms", 0)),
        acked_ms=int(record.get(f"{number}:acked_ms", 0)),
        ended_ms=int(record.get(f"{number}:ended_ms", 0)),
        outcome="" if state in _RUNNING else state,
        detail=record.get(f"{number}:why", ""),
    )
