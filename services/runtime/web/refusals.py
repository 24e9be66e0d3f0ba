"""How errors look over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from aiohttp import web

from lingua_scheduler.services.runtime.errors import LinguaError, reason_name
from lingua_scheduler.v1 import common_pb2

_Reason: TypeAlias = common_pb2.ErrorReason.ValueType

STATUSES: Mapping[_Reason, int] = {
    common_pb2.ERROR_REASON_INVALID_MESSAGE: 400,
    common_pb2.ERROR_REASON_UNAUTHENTICATED: 401,
    common_pb2.ERROR_REASON_PERMISSION_DENIED: 403,
    common_pb2.ERROR_REASON_NODE_NOT_FOUND: 404,
    common_pb2.ERROR_REASON_JOB_NOT_FOUND: 404,
    common_pb2.ERROR_REASON_SESSION_NOT_FOUND: 404,
    common_pb2.ERROR_REASON_ROOM_NOT_FOUND: 404,
    common_pb2.ERROR_REASON_NODE_EPOCH_OLD: 409,
    common_pb2.ERROR_REASON_ROOM_CLOSED: 410,
    common_pb2.ERROR_REASON_ROOM_FULL: 429,
    common_pb2.ERROR_REASON_QUOTA_EXCEEDED: 429,
    common_pb2.ERROR_REASON_BACKPRESSURE: 429,
    common_pb2.ERROR_REASON_DRAINING: 503,
    common_pb2.ERROR_REASON_SCHEDULER_DEPENDENCY_DOWN: 503,
    common_pb2.ERROR_REASON_DEADLINE_EXCEEDED: 504,
}
# When to come back if the error does not say so.
_RETRY_AFTER_MS = 1000


class HttpRefusal(Exception):  # noqa: N818 - an answer, not a fault
    """A request that is not served.

    Args:
        status: of HTTP.
        reason: a word for programs.
        message: a sentence for people.
        metadata: facts for tools.
        fields: the bad fields, and what is wrong with each.
        retry_after_ms: when a retry may succeed; 0 if it would not.
        headers: of the response, besides those that follow from the rest.
    """

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        *,
        metadata: Mapping[str, str] | None = None,
        fields: Mapping[str, str] | None = None,
        retry_after_ms: int = 0,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self._message = message
        self._metadata = dict(metadata or {})
        self._fields = dict(fields or {})
        self._retry_after_ms = retry_after_ms
        self._headers = dict(headers or {})

    @classmethod
    def of(cls, error: LinguaError) -> HttpRefusal:
        """The refusal that says the same as an error of the scheduler."""
        status = STATUSES.get(error.reason, 500)
        retry_after_ms = error.retry_after_ms
        if status in (429, 503):
            retry_after_ms = retry_after_ms or _RETRY_AFTER_MS
        return cls(
            status,
            reason_name(error.reason),
            error.message,
            metadata=error.metadata,
            fields=dict(error.fields),
            retry_after_ms=retry_after_ms,
            headers={"WWW-Authenticate": "Bearer"} if status == 401 else None,
        )

    def facts(self) -> dict[str, Any]:
        """What the body of the response says."""
        facts: dict[str, Any] = {
            "reason": self.reason,
            "message": self._message,
            "metadata": self._metadata,
            "retryAfterMs": self._retry_after_ms,
        }
        return {**facts, "fields": self._fields} if self._fields else facts

    def response(self, *, within: str = "") -> web.Response:
        """The response. It ends the connection, so that nothing sent after the request is read.

        Args:
            within: the key of the body that has the facts; empty if they are the body.
        """
        if self._retry_after_ms:
            self._headers["Retry-After"] = str(-(-self._retry_after_ms // 1000))
        body = {within: self.facts()} if within else self.facts()
        response = web.json_response(body, status=self.status, headers=self._headers)
        response.force_close()
        return response
