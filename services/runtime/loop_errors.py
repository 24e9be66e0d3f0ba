"""Logs the errors that the event loop reports, except for one false alarm."""

import asyncio
import logging
from typing import Any

_log = logging.getLogger(__name__)

# Reported by uvloop (seen with 0.23) if connecting is cancelled in the iteration of the loop in
# which the TLS handshake completes: `create_connection` closes the socket but leaves the last
# callback of the handshake scheduled, which finds the socket closed. The caller has had its timeout
# or cancellation, and nothing is left open.
_MESSAGE = "Fatal error on SSL protocol"
_WORDS = "the handler is closed"


def report_loop_errors(loop: asyncio.AbstractEventLoop) -> None:
    """Stops reporting TLS connections that were abandoned during the handshake as errors."""
    loop.set_exception_handler(_handle)


def _handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    error = context.get("exception")
    if (
        context.get("message") == _MESSAGE
        and isinstance(error, RuntimeError)
        and _WORDS in str(error)
    ):
        _log.debug("connection abandoned during tls handshake", extra={"reason": str(error)})
        return
    loop.default_exception_handler(context)
