"""How much audio waits for room in this process. Pure: no clock, no I/O."""

from collections import Counter

# One tenant may have this share of it, so that its jobs do not keep all others from waiting.
_TENANT_SHARE = 2


class WaitingBytes:
    """Counts the audio of waiting jobs, in all and by tenant.

    Args:
        max_bytes: all of it at most; one tenant may have half.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._jobs: dict[str, tuple[str, int]] = {}
        self._tenants: Counter[str] = Counter()
        self.total = 0
        """Bytes that wait."""

    def take(self, job_id: str, tenant: str, size: int) -> bool:
        """Counts a job that waits from now on; False, and nothing counted, if there is no room.

        Of a job that is counted already, nothing changes.
        """
        if job_id in self._jobs:
            return True
        most = self._max_bytes
        if self.total + size > most or self._tenants[tenant] + size > most // _TENANT_SHARE:
            return False
        self._jobs[job_id] = tenant, size
        self._tenants[tenant] += size
        self.total += size
        return True

    def give_back(self, job_id: str) -> None:
        """The job does not wait any more. Of one that is not counted: nothing."""
        tenant, size = self._jobs.pop(job_id, ("", 0))
        self.total -= size
        self._tenants[tenant] -= size
        if self._tenants[tenant] <= 0:
            del self._tenants[tenant]
