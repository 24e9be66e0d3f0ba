"""How errors look to a client of the web entry: over HTTP, and when its connection is closed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TypeAlias

from aiohttp import web
from google.protobuf.json_format import MessageToDict

from lingua_scheduler.services.runtime.errors import LinguaError, reason_name
from lingua_scheduler.v1 import common_pb2

_Reason: TypeAlias = common_pb2.ErrorReason.ValueType

DONE = 1000
GO_AWAY = 1001
INTERNAL = 1011
SILENT = 4408
TOO_LARGE = 4413

_CLOSE_CODES: Mapping[_Reason, int] = {
    common_pb2.ERROR_REASON_DRAINING: GO_AWAY,
    common_pb2.ERROR_REASON_SCHEDULER_DEPENDENCY_DOWN: 1013,
    common_pb2.ERROR_REASON_BACKPRESSURE: 1013,
    common_pb2.ERROR_REASON_INVALID_MESSAGE: 4400,
    common_pb2.ERROR_REASON_UNAUTHENTICATED: 4401,
    common_pb2.ERROR_REASON_PERMISSION_DENIED: 4403,
    common_pb2.ERROR_REASON_SESSION_NOT_FOUND: 4404,
    common_pb2.ERROR_REASON_SESSION_TAKEN_OVER: 4409,
    common_pb2.ERROR_REASON_QUOTA_EXCEEDED: 4429,
}
_STATUSES: Mapping[_Reason, int] = {
    common_pb2.ERROR_REASON_INVALID_MESSAGE: 400,
    common_pb2.ERROR_REASON_UNAUTHENTICATED: 401,
    common_pb2.ERROR_REASON_PERMISSION_DENIED: 403,
    common_pb2.ERROR_REASON_BACKPRESSURE: 429,
    common_pb2.ERROR_REASON_DRAINING: 503,
    common_pb2.ERROR_REASON_SCHEDULER_DEPENDENCY_DOWN: 503,
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
        retry_after_ms: int = 0,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self._message = message
        self._metadata = dict(metadata or {})
        self._retry_after_ms = retry_after_ms
        self._headers = dict(headers or {})

    @classmethod
    def of(cls, error: LinguaError) -> HttpRefusal:
        """The refusal that says the same as an error of the scheduler."""
        status = _STATUSES.get(error.reason, 500)
        retry_after_ms = error.retry_after_ms
        if status in (429, 503):
            retry_after_ms = retry_after_ms or _RETRY_AFTER_MS
        return cls(
            status,
            reason_name(error.reason),
            error.message,
            metadata=error.metadata,
            retry_after_ms=retry_after_ms,
            headers={"WWW-Authenticate": "Bearer"} if status == 401 else None,
        )

    def response(self) -> web.Response:
        """The response. It ends the connection, so that nothing sent after the request is read."""
        body = {
            "reason": self.reason,
            "message": self._message,
            "metadata": self._metadata,
            "retryAfterMs": self._retry_after_ms,
        }
        if self._retry_after_ms:
            self._headers["Retry-After"] = str(-(-self._retry_after_ms // 1000))
        response = web.json_response(body, status=self.status, headers=self._headers)
        response.force_close()
        return response


def close_code(error: LinguaError) -> int:
    """The code with which an error closes a connection."""
    return _CLOSE_CODES.get(error.reason, INTERNAL)


def error_frame(error: common_pb2.Error) -> str:
    """An error event as a text frame, for errors that no session tells its client."""
    return json.dumps({"events": [{"error": MessageToDict(error)}]})
