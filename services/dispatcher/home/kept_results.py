"""Kept results: stored in the job's cell until the session's next gateway asks for them."""

from lingua_scheduler.services.dispatcher.job_cells import cell_of
from lingua_scheduler.services.runtime.errors import BackpressureError
from lingua_scheduler.services.runtime.redis.cells.cells import Cells
from lingua_scheduler.services.runtime.redis.script_calls import (
    KeepResult,
    fetch_result,
    orphan_state,
    record_steps,
)
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2

# Answers of lua/keep_result.lua.
_KEPT, _REFUSED, _FULL = b"kept", b"refused", b"full"
# The most bytes of orphaned results that may wait to be kept. A node sends a result that was left
# out again when it reconnects.
_WAITING_BYTES = 32 * 2**20


class KeptResults:
    """Stores and fetches kept results by job id."""

    def __init__(self, *, cells: Cells, settings: Settings) -> None:
        self._cells = cells
        self._most_bytes = settings.kept_results_bytes
        self._keep_result = KeepResult(
            # The cells may be on one server, and jobs are spread evenly over them.
            ttl_ms=settings.kept_result_ms,
            max_bytes=settings.kept_results_bytes // len(cells.all),
        ).call
        self._largest_bytes = settings.max_message_bytes
        self._waiting_bytes = 0

    async def keep(self, job_id: str, result: dispatcher_pb2.JobResult) -> None:
        """Keeps the result of a job, unless another attempt has finished the job.

        Raises:
            DependencyDownError: Redis does not answer.
            BackpressureError: the limit of kept results is reached.
        """
        written = result.SerializeToString()
        if await self._keep(job_id, written, len(written), "", result.attempt.attempt) == _FULL:
            raise BackpressureError(
                f"the limit of kept results is reached ({self._most_bytes} bytes, a quarter of it "
                "for one tenant); raise LINGUA_KEPT_RESULTS_BYTES"
            )

    async def keep_orphan(
        self, job_id: str, result: dispatcher_pb2.JobResult, node_id: str
    ) -> bool:
        """Keeps an orphaned result, if the node was given that attempt.

        Does not keep it if the attempt can no longer win, another result is kept, or the limit is
        reached.

        Returns:
            Whether it was kept.

        Raises:
            DependencyDownError: Redis does not answer.
        """
        size, attempt = result.ByteSize(), result.attempt.attempt
        if size > self._largest_bytes or self._waiting_bytes + size > _WAITING_BYTES:
            return False
        self._waiting_bytes += size
        try:
            # First without the result: most orphans are late, and not worth sending.
            if await self._keep(job_id, b"", size, node_id, attempt) != _KEPT:
                return False
            written = result.SerializeToString()
            return await self._keep(job_id, written, size, node_id, attempt) == _KEPT
        finally:
            self._waiting_bytes -= size

    async def orphan_state(self, attempt: common_pb2.AttemptRef, node_id: str) -> str:
        """Whether a node's report about an attempt is wanted, as lua/orphan_state.lua answers.

        Raises:
            DependencyDownError: Redis does not answer.
        """
        if (cell := cell_of(self._cells, attempt.job_id)) is None:
            return "unknown"
        state = await cell.link.call(
            *orphan_state(job=attempt.job_id, attempt=attempt.attempt, node_id=node_id)
        )
        return str(state.decode())

    async def _keep(
        self, job_id: str, written: bytes, size: int, node_id: str, attempt: int
    ) -> bytes:
        if (cell := cell_of(self._cells, job_id)) is None:
            return _REFUSED
        answer: bytes = await cell.link.call(
            *self._keep_result(
                job=job_id, result=written, size=size, node_id=node_id, attempt=attempt
            )
        )
        return answer

    async def record_steps(self, job_id: str, steps: bytes) -> None:
        """Writes a timeline into a job's record, if there is one. Raises DependencyDownError."""
        if (cell := cell_of(self._cells, job_id)) is not None:
            await cell.link.call(*record_steps(job=job_id, steps=steps))

    async def has(self, job_id: str) -> bool:
        """Whether a result is kept; cheaper than fetching it. Raises DependencyDownError."""
        if (cell := cell_of(self._cells, job_id)) is None:
            return False
        return bool(await cell.link.command("EXISTS", f"{cell.prefix}:job:{job_id}:result"))

    async def fetch(self, job_id: str) -> dispatcher_pb2.JobResult | None:
        """The kept result, or None. It stays until it expires, as the answer may get lost."""
        if (cell := cell_of(self._cells, job_id)) is None:
            return None
        kept = await cell.link.call(*fetch_result(job=job_id))
        return dispatcher_pb2.JobResult.FromString(kept) if kept else None
