"""Counts and logs calls that are refused because of who makes them."""

import logging

from prometheus_client import CollectorRegistry, Counter

from lingua_scheduler.services.runtime.auth.principals import caller
from lingua_scheduler.services.runtime.errors import LinguaError, reason_name

_log = logging.getLogger(__name__)


class Refusals:
    """Of all servers of a process.

    Args:
        registry: where they are counted; None for nowhere.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self._counter: Counter | None = None
        if registry is None:
            return
        self._counter = Counter(
            "lingua_auth_refused",
            "Calls that were refused because of their caller, by reason: unauthenticated (no valid "
            "token or certificate), permission_denied (its role may not call this).",
            ["reason"],
            registry=registry,
        )
        # Exported from 0 on, so that the first refusal is an increase.
        for reason in ("unauthenticated", "permission_denied"):
            self._counter.labels(reason)

    def note(self, method: str, error: LinguaError) -> None:
        """Counts and logs a refused call of `package.Service/Method`, without credentials."""
        if self._counter is not None:
            self._counter.labels(reason_name(error.reason).lower()).inc()
        who = caller()
        facts = {"method": method, "reason": error.message}
        if who is not None:
            facts |= {"role": str(who.role), "caller": who.name}
        _log.info("call refused", extra=facts)
