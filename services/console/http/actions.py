"""What operators change, with an audit line for each attempt."""

import hmac
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from lingua_scheduler.services.console.http.backend import Actions
from lingua_scheduler.services.console.http.requests import json_body, text_field
from lingua_scheduler.services.console.http.routes import Route
from lingua_scheduler.services.console.http.viewers import Viewer, Viewers
from lingua_scheduler.services.console.metrics import ConsoleMetrics
from lingua_scheduler.services.runtime.auth.principals import Role
from lingua_scheduler.services.runtime.errors import (
    LinguaError,
    PermissionDeniedError,
    internal_error,
)
from lingua_scheduler.services.runtime.telemetry.logs import AUDIT
from lingua_scheduler.services.runtime.web.connections import connection_of
from lingua_scheduler.services.runtime.web.refusals import HttpRefusal

CSRF_HEADER = "X-CSRF-Token"
_MAX_WHY_CHARS = 500
_DEFAULT_WHY = "cancelled in the console"

_log = logging.getLogger(__name__)
_audit = logging.getLogger(AUDIT)
# Also if the process logs warnings only.
_audit.setLevel(logging.INFO)


class ActionRequests:
    """Requests to act. Each leaves a line in the log: who did what, from where, and the outcome.

    Args:
        actions: carries them out.
        viewers: know who makes a request.
        metrics: of the console.
        instance_id: of this process, for errors.
    """

    def __init__(
        self, actions: Actions, viewers: Viewers, metrics: ConsoleMetrics, *, instance_id: str
    ) -> None:
        self._actions = actions
        self._viewers = viewers
        self._metrics = metrics
        self._instance_id = instance_id

    async def act(self, request: web.BaseRequest, route: Route) -> web.Response:
        """Carries out an action.

        Raises:
            HttpRefusal: the caller may not act, or the action failed.
        """
        facts = {
            "action": route.action,
            "target": route.target,
            "address": connection_of(request).address,
        }
        try:
            viewer = self._viewers.viewer(request)
            facts |= {"by": viewer.name, "role": str(viewer.role)}
            self._check(request, viewer)
            body = await json_body(request)
            await self._carry_out(route, body, viewer)
        except HttpRefusal as refusal:
            self._metrics.actions.labels(route.action, refusal.reason).inc()
            _audit.warning("action refused", extra={**facts, "outcome": refusal.reason})
            raise
        self._metrics.actions.labels(route.action, "OK").inc()
        _audit.info("action", extra={**facts, "outcome": "OK"})
        return web.Response(status=204)

    def _check(self, request: web.BaseRequest, viewer: Viewer) -> None:
        if viewer.role is not Role.OPERATOR:
            raise HttpRefusal.of(
                PermissionDeniedError("viewers may look, but not act: sign in as an operator")
            )
        if not viewer.may_act:
            raise HttpRefusal.of(
                PermissionDeniedError(
                    "a client certificate is enough to look: to act, sign in with a token"
                )
            )
        if viewer.is_ambient:
            self._check_own_page(request, viewer)

    def _check_own_page(self, request: web.BaseRequest, viewer: Viewer) -> None:
        """Refuses what another site's page has made the viewer's browser send."""
        if "Origin" not in request.headers and "Sec-Fetch-Site" not in request.headers:
            raise HttpRefusal(
                403, "WRONG_ORIGIN", "the request does not say which page it is from: send Origin"
            )
        given = request.headers.get(CSRF_HEADER, "")
        # Headers may have any bytes, and what is not UTF-8 becomes characters that are no text.
        given_bytes = given.encode(errors="surrogateescape")
        if not hmac.compare_digest(given_bytes, self._viewers.csrf(viewer).encode()):
            raise HttpRefusal(
                403,
                "WRONG_CSRF_TOKEN",
                f"the header {CSRF_HEADER} is missing or wrong: /api/v1/me has its value",
            )

    async def _carry_out(self, route: Route, body: dict[str, Any], viewer: Viewer) -> None:
        try:
            if route.action == "cancel":
                why = text_field(body, "why", most=_MAX_WHY_CHARS, default="") or _DEFAULT_WHY
                await self._actions.cancel(route.target, why, viewer.token)
            else:
                await self._by_id(route.action)(route.target, viewer.token)
        except LinguaError as error:
            raise HttpRefusal.of(error) from None
        except HttpRefusal:
            raise
        except Exception as error:
            failure = internal_error(self._instance_id)
            facts = {"error_id": failure.metadata["error_id"], "action": route.action}
            _log.error("action failed", exc_info=error, extra=facts)
            raise HttpRefusal.of(failure) from None

    def _by_id(self, action: str) -> Callable[[str, str | None], Awaitable[None]]:
        return {
            "drain": self._actions.drain,
            "ready": self._actions.ready,
            "remove": self._actions.remove,
            "close": self._actions.close_room,
        }[action]
