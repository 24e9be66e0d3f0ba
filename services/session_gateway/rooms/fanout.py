"""Sends what was said in a room to all its listeners here, without holding up anybody else."""

import asyncio
import logging
from collections import deque
from collections.abc import Iterator

from lingua_scheduler.services.session_gateway.metrics import RoomMetrics
from lingua_scheduler.services.session_gateway.rooms.lane import Gap
from lingua_scheduler.services.session_gateway.rooms.lane_reads import Deliver
from lingua_scheduler.services.session_gateway.rooms.listener import Listener
from lingua_scheduler.services.session_gateway.rooms.packing import packed_item

# Messages that are sent before others get their turn: about a millisecond of work.
SENDS_PER_TURN = 100

_log = logging.getLogger(__name__)


class Fanout:
    """Carries out deliveries of one room, in order.

    Few messages are sent at once. After `SENDS_PER_TURN`, the rest waits for the next iteration of
    the event loop, and deliveries that follow wait behind it.

    Args:
        metrics: of rooms.
    """

    def __init__(self, metrics: RoomMetrics) -> None:
        self._metrics = metrics
        self._queue: deque[Iterator[None]] = deque()
        self._next_turn: asyncio.Handle | None = None

    def add(self, deliver: Deliver[Listener]) -> None:
        """Sends items to listeners, now or soon."""
        gaps = sum(isinstance(item, Gap) for item in deliver.items)
        self._metrics.delivered(deliver.items, gaps, len(deliver.listeners))
        self._queue.append(_sends(deliver))
        if self._next_turn is None:
            self._take_turn()

    def finish(self) -> None:
        """Sends everything that waits."""
        while self._queue:
            self._send(SENDS_PER_TURN)

    def close(self) -> None:
        """Sends nothing more."""
        self._queue.clear()
        if self._next_turn is not None:
            self._next_turn.cancel()

    def _take_turn(self) -> None:
        self._next_turn = None
        self._send(SENDS_PER_TURN)
        if self._queue:
            self._next_turn = asyncio.get_running_loop().call_soon(self._take_turn)

    def _send(self, most: int) -> None:
        while self._queue:
            try:
                for _ in self._queue[0]:
                    most -= 1
                    if most <= 0:
                        return
            except Exception:
                # Whatever is wrong with this one, those that follow are sent.
                _log.exception("room delivery failed")
            self._queue.popleft()


def _sends(deliver: Deliver[Listener]) -> Iterator[None]:
    """Sends one message with each step."""
    for item in deliver.items:
        packed = packed_item(item, deliver.form)
        for listener in deliver.listeners:
            listener.send(packed)
            yield
