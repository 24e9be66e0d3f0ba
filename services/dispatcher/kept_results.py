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
        await self._keep(job_id, result, over=True)

    async def keep_orphan(self, job_id: str, result: dispatcher_pb2.JobResult) -> None:
        """Keeps what may be the result of a job, unless one is kept. Raises DependencyDownError."""
        await self._keep(job_id, result, over=False)

    async def _keep(self, job_id: str, result: dispatcher_pb2.JobResult, *, over: bool) -> None:
        written = result.SerializeToString()
        await self._link.call("keep_result", job_id, written, self._ttl_ms, int(over))

    async def has(self, job_id: str) -> bool:
        """Whether a result is kept; costs less than to fetch it. Raises DependencyDownError."""
        return bool(await self._link.command("EXISTS", f"{self._prefix}{job_id}:result"))

    async def fetch(self, job_id: str) -> dispatcher_pb2.JobResult | None:
        """The kept result, or None. It stays until its time is over: the answer may get lost."""
        kept = await self._link.call("fetch_result", job_id)
        return dispatcher_pb2.JobResult.FromString(kept) if kept else None
