"""Follows all nodes: one stream, opened again whenever it is lost."""

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Any

import grpc

from lingua_scheduler.services.console.services.calls import ServiceCalls, call_error
from lingua_scheduler.services.console.services.problems import Problems
from lingua_scheduler.services.console.store.fleet import Fleet
from lingua_scheduler.services.runtime.errors import (
    DependencyDownError,
    InternalError,
    LinguaError,
)

# The service sends something every 5 s. It may take longer while it reads many nodes.
SILENCE_S = 15.0
# Between two streams; doubled each time.
PAUSE_MIN_S, PAUSE_MAX_S = 0.2, 5.0
_BROKEN = (grpc.RpcError, OSError, TimeoutError, asyncio.InvalidStateError)

_log = logging.getLogger(__name__)


class FleetWatch:
    """Applies what `WatchFleet` sends to the fleet.

    Args:
        calls: opens the stream.
        fleet: is kept up to date.
        problems: get a problem of "fleet" while there is no stream.
        now_ms: the time.
    """

    def __init__(
        self,
        *,
        calls: ServiceCalls,
        fleet: Fleet,
        problems: Problems,
        now_ms: Callable[[], int],
    ) -> None:
        self._calls = calls
        self._fleet = fleet
        self._problems = problems
        self._now_ms = now_ms

    async def run(self) -> None:
        """Follows the fleet until cancelled."""
        pause = 0.0
        while True:
            before = self._fleet.as_of_ms
            self._problems.found("fleet", await self._follow())
            if self._fleet.as_of_ms != before:
                pause = PAUSE_MIN_S
            # Many consoles lose the same instance at the same moment.
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(max(2 * pause, PAUSE_MIN_S), PAUSE_MAX_S)

    async def _follow(self) -> LinguaError:
        """Follows one stream to its end; returns why it ended."""
        try:
            # Certificates or tokens that cannot be read just now end no more than this attempt.
            channel, stream = self._calls.open_stream("pool", "WatchFleet")
        except Exception:
            return self._failed()
        try:
            self._fleet.begin()
            while True:
                async with asyncio.timeout(SILENCE_S):
                    message: Any = await stream.read()
                if message is grpc.aio.EOF:
                    return DependencyDownError("the pool service ended the stream")
                for _ in self._fleet.apply_in_steps(message, self._now_ms()):
                    await asyncio.sleep(0)
                if message.is_complete:
                    self._problems.solved("fleet")
        except _BROKEN as error:
            return call_error("pool", error)
        except Exception:
            return self._failed()
        finally:
            stream.cancel()
            await channel.close()

    def _failed(self) -> LinguaError:
        """Logs the fault that is being handled. One of this source must not end the others."""
        _log.exception("watching the fleet failed")
        return InternalError("the console failed; its log has the details")
