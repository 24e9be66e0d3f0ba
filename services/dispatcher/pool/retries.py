"""Calls to the pool service that must get through, whatever is down meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from google.protobuf.message import Message

from lingua_scheduler.services.runtime import errors
from lingua_scheduler.services.runtime.timers import Timers, now_ms

# Between two tries to connect, and between two tries of a call that must get through.
PAUSE_MIN_S, PAUSE_MAX_S = 0.05, 1.0
# About 2 MB. Over this, the leases of the oldest end by themselves.
MAX_REPEATS = 10_000

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class PoolClientCounts:
    """What has happened since the start."""

    streams: int = 0
    operations: int = 0
    # Messages that carried them.
    messages: int = 0
    timeouts: int = 0
    # Of `persistently`: further tries; calls given up when their time was over, dropped because
    # there were too many, and answered with an error that a repeat would not change.
    repeats: int = 0
    given_up: int = 0
    dropped: int = 0
    refused: int = 0


@dataclass(slots=True, eq=False)
class _Repeat:
    operation: str
    request: Message
    until_ms: float
    then: Callable[[Any], None]
    traceparent: str
    patient: bool
    pause: float = PAUSE_MIN_S


class Repeats:
    """Calls that are made again until they are answered or their time is over.

    Costs no task. `send` makes a call; it may raise what its future may.
    """

    def __init__(
        self, *, send: Callable[..., asyncio.Future[Any]], counts: PoolClientCounts
    ) -> None:
        self._send = send
        self._counts = counts
        self._repeats: OrderedDict[int, _Repeat] = OrderedDict()
        self._next = 0
        self._none_left = asyncio.Event()
        self._timers: Timers[int, None] = Timers(on_due=self._again, clock=now_ms)

    def __len__(self) -> int:
        return len(self._repeats)

    def add(
        self,
        operation: str,
        request: Message,
        give_up_after_ms: float,
        then: Callable[[Any], None],
        traceparent: str = "",
        *,
        patient: bool = False,
    ) -> None:
        """Calls `then` with the response, or with None where there will be none."""
        if len(self._repeats) >= MAX_REPEATS:
            self._counts.dropped += 1
            self._end(next(iter(self._repeats)), None)
        self._next += 1
        until_ms = now_ms() + give_up_after_ms
        repeat = _Repeat(operation, request, until_ms, then, traceparent, patient)
        self._repeats[self._next] = repeat
        self._try(self._next)

    async def settle(self, within_s: float) -> None:
        """Returns when there is none, or after that time."""
        self._none_left.clear()
        if self._repeats:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._none_left.wait(), within_s)

    def end_all(self) -> None:
        """Gives every call up."""
        for number in list(self._repeats):
            self._end(number, None)
        self._timers.close()

    def _try(self, number: int) -> None:
        repeat = self._repeats[number]
        try:
            future = self._send(
                repeat.operation, repeat.request, repeat.traceparent, patient=repeat.patient
            )
        except errors.LinguaError as error:
            self._failed(number, error)
        else:
            future.add_done_callback(partial(self._tried, number))

    def _tried(self, number: int, future: asyncio.Future[Any]) -> None:
        error = future.exception()
        if number not in self._repeats:
            return
        if error is None:
            self._end(number, future.result())
        else:
            self._failed(number, error)

    def _failed(self, number: int, error: BaseException) -> None:
        repeat, now = self._repeats[number], now_ms()
        if not isinstance(error, errors.DependencyDownError | errors.DrainingError):
            self._counts.refused += 1
            _log.warning("%s was refused and is not repeated: %s", repeat.operation, error)
            self._end(number, None)
        elif now >= repeat.until_ms:
            self._counts.given_up += 1
            self._end(number, None)
        else:
            at_ms = min(now + jittered(repeat.pause) * 1000, repeat.until_ms)
            repeat.pause = min(2 * repeat.pause, PAUSE_MAX_S)
            self._timers.set(number, None, at_ms)

    def _again(self, number: int, _: None) -> None:
        if number in self._repeats:
            self._counts.repeats += 1
            self._try(number)

    def _end(self, number: int, response: Message | None) -> None:
        repeat = self._repeats.pop(number)
        if not self._repeats:
            self._none_left.set()
        if response is not None:
            repeat.then(response)
        else:
            # Later: whoever asks is in the middle of something.
            asyncio.get_running_loop().call_soon(repeat.then, None)


def jittered(pause: float) -> float:
    """Many clients lose the same instance at the same moment."""
    return pause * random.uniform(0.5, 1.0)
