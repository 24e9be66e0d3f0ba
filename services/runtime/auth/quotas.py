"""Limits of tenants: where they come from, and the error if one is reached."""

from collections.abc import Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Counter

from lingua_scheduler.services.runtime.auth.principals import caller
from lingua_scheduler.services.runtime.errors import QuotaExceededError
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.v1 import common_pb2

# Of lua/lib/quota.lua.
REFUSED = b"QUOTA_EXCEEDED"
# The longest retry time that a caller is told.
_RETRY_MOST_MS = 3_600_000


def tenant_limits(settings: Settings) -> common_pb2.TenantLimits:
    """The limits of the caller's tenant: those of its token, else of the settings."""
    principal = caller()
    if principal is not None and principal.limits is not None:
        return principal.limits
    return common_pb2.TenantLimits(
        sessions=settings.quota_sessions,
        jobs=settings.quota_jobs,
        audio_ms_per_minute=settings.quota_audio_s_per_minute * 1000,
        rooms=settings.quota_rooms,
    )


def quota_error(reply: Sequence[Any]) -> QuotaExceededError:
    """Makes the error for a script's refusal: reason, limit, amount used, and so on."""
    limit, used, allowed, retry_ms = reply[1].decode(), int(reply[2]), int(reply[4]), int(reply[6])
    # The text depends on the limit only; the amount used is in the metadata, for tools.
    words = {
        "sessions": f"the tenant has reached its limit of {allowed} open sessions",
        "jobs": f"the tenant has reached its limit of {allowed} jobs in flight",
        "rooms": f"the tenant has reached its limit of {allowed} rooms",
        "audio": f"the tenant has reached its limit of {allowed / 1000:g} s of speech per minute",
        "owner_nodes": f"the owner has reached its limit of {allowed} connected nodes",
        "owner_slots": f"the owner's nodes would have more than the {allowed} slots allowed; they "
        f"have {used} without this node",
    }
    return QuotaExceededError(
        words[limit],
        retry_after_ms=min(retry_ms, _RETRY_MOST_MS),
        metadata={"limit": limit, "used": str(used), "allowed": str(allowed)},
    )


class QuotaMetrics:
    """Counts refusals in the pool service (jobs, audio) and the gateway (sessions, rooms).

    Args:
        registry: of the process.
        limits: those that the process enforces.
    """

    def __init__(self, registry: CollectorRegistry, *limits: str) -> None:
        self._refused = Counter(
            "lingua_quota_refused",
            "Requests that were refused because their tenant has reached a limit, by limit: "
            "sessions, rooms, jobs or audio.",
            ["limit"],
            registry=registry,
        )
        # Exported from 0 on, so that the first refusal is an increase.
        for limit in limits:
            self._refused.labels(limit)

    def refused(self, error: QuotaExceededError) -> None:
        """Counts a refusal."""
        self._refused.labels(error.metadata["limit"]).inc()
