"""Handles the signals that ask a process to end."""

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Iterator

_log = logging.getLogger(__name__)


@contextlib.contextmanager
def stop_signals() -> Iterator[asyncio.Event]:
    """Within this block, SIGTERM and SIGINT set the event instead of ending the process.

    So they interrupt neither start nor drain. A second signal ends the process at once, with the
    exit code that shells use for it.
    """
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()

    def stop(number: signal.Signals) -> None:
        if stopping.is_set():
            _log.warning("ending at once on a second signal", extra={"signal": number.name})
            logging.shutdown()
            os._exit(128 + number)
        _log.info("draining", extra={"signal": number.name})
        stopping.set()

    handled = (signal.SIGTERM, signal.SIGINT)
    for number in handled:
        loop.add_signal_handler(number, stop, number)
    try:
        yield stopping
    finally:
        for number in handled:
            loop.remove_signal_handler(number)
