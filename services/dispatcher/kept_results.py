"""Results that found no gateway, kept in Redis until the session's next one asks."""

from lingua_scheduler.services.runtime.redis_link import RedisLink
from lingua_scheduler.services.runtime.settings import Settings
from lingua_scheduler.v1 import dispatcher_pb2


class KeptResults:
    """Keeps and fetches results by job id."""

    def __init__(self, *, link: RedisLink, settings: Settings) -> None:
        self._link = link
        self._ttl_ms = settings.kept_result_ms
        self._prefix = f"{settings.redis_prefix}:job:"

    async def keep(self, job_id: str, result: dispatcher_pb2.JobResult) -> None:
        """Keeps the result of a job. Raises DependencyDownError."""
        await self._keep(job_id, result, node_id="")

    async def keep_orphan(
        self, job_id: str, result: dispatcher_pb2.JobResult, node_id: str
    ) -> None:
        """Keeps what a node says is the result of a job, where it was given that attempt.

        Not where one is kept. Raises DependencyDownError.
        """
        await self._keep(job_id, result, node_id)

    async def _keep(self, job_id: str, result: dispatcher_pb2.JobResult, node_id: str) -> None:
        written, attempt = result.SerializeToString(), result.attempt.attempt
        await self._link.call("keep_result", job_id, written, self._ttl_ms, node_id, attempt)

    async def record_steps(self, job_id: str, steps: bytes) -> None:
        """Writes steps into a job's record, where there is one. Raises DependencyDownError."""
        await self._link.call("record_steps", job_id, steps)

    async def has(self, job_id: str) -> bool:
        """Whether a result is kept; costs less than to fetch it. Raises DependencyDownError."""
        return bool(await self._link.command("EXISTS", f"{self._prefix}{job_id}:result"))

    async def fetch(self, job_id: str) -> dispatcher_pb2.JobResult | None:
        """The kept result, or None. It stays until its time is over: the answer may get lost."""
        kept = await self._link.call("fetch_result", job_id)
        return dispatcher_pb2.JobResult.FromString(kept) if kept else None
