"""What a tenant may use: where its limits come from, and how it is told that it has reached one."""

from collections.abc import Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Counter

from lingua_scheduler.services.runtime.auth.principals import caller
from lingua_scheduler.services.runtime.errors import QuotaExceededError
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.v1 import common_pb2

# Of lua/lib/quota.lua.
REFUSED = b"QUOTA_EXCEEDED"
# Who has used far too much is told no longer time than that.
_RETRY_MOST_MS = 3_600_000


def tenant_limits(settings: Settings) -> common_pb2.TenantLimits:
    """What the tenant of the current call may use: by its token, else by the settings."""
    principal = caller()
    if principal is not None and principal.limits is not None:
        return principal.limits
    return common_pb2.TenantLimits(
        sessions=settings.quota_sessions,
        jobs=settings.quota_jobs,
        audio_ms_per_minute=settings.quota_audio_s_per_minute * 1000,
    )


def quota_error(reply: Sequence[Any]) -> QuotaExceededError:
    """The error of a script's refusal: its reason, which limit, how much of it is used, ..."""
    limit, used, allowed, retry_ms = reply[1].decode(), int(reply[2]), int(reply[4]), int(reply[6])
    # The same words as long as the limit is the same: what is used is for tools.
    words = {
        "sessions": f"as many sessions as the tenant may have at a time ({allowed}) are open",
        "jobs": f"as many jobs as the tenant may have at a time ({allowed}) are in flight",
        "audio": f"the tenant has used the speech that it may in a minute ({allowed / 1000:g} s)",
        "owner_nodes": f"as many nodes as their owner may have ({allowed}) are connected",
        "owner_slots": f"all nodes of the owner together would have more slots than the {allowed} "
        f"allowed; they have {used} without this one",
    }
    return QuotaExceededError(
        words[limit],
        retry_after_ms=min(retry_ms, _RETRY_MOST_MS),
        metadata={"limit": limit, "used": str(used), "allowed": str(allowed)},
    )


class QuotaMetrics:
    """Counts refusals; of the pool service (jobs, audio) and the gateway (sessions).

    Args:
        registry: of the process.
        limits: those that the process looks at.
    """

    def __init__(self, registry: CollectorRegistry, *limits: str) -> None:
        self._refused = Counter(
            "lingua_quota_refused",
            "What was refused because its tenant has reached a limit: sessions, jobs or audio.",
            ["limit"],
            registry=registry,
        )
        # From 0, or the first of a kind would be no increase.
        for limit in limits:
            self._refused.labels(limit)

    def refused(self, error: QuotaExceededError) -> None:
        """Counts a refusal."""
        self._refused.labels(error.metadata["limit"]).inc()
