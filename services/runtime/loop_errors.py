"""What the event loop reports of its own accord: all of it is logged, but for one false alarm."""

import asyncio
import logging
from typing import Any

_log = logging.getLogger(__name__)

# uvloop (seen with 0.23) if connecting is cancelled in the turn of the loop in which the TLS
# handshake is completed: its `create_connection` closes the socket and leaves the last callback of
# the handshake scheduled, which finds the socket closed and reports that as an error. Whoever
# connected has had its time-out or cancellation, and nothing is left open.
_MESSAGE = "Fatal error on SSL protocol"
_WORDS = "the handler is closed"


def report_loop_errors(loop: asyncio.AbstractEventLoop) -> None:
    """From here on, TLS connections that were given up while they were made are no errors."""
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
