"""Operations on the pool service that must get through, even if it is down meanwhile."""

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

from lingua_scheduler.services.dispatcher.pool.stream import PoolCounts
from lingua_scheduler.services.runtime import errors
from lingua_scheduler.services.runtime.rpc.reconnecting import PAUSE_MAX_S, PAUSE_MIN_S
from lingua_scheduler.services.runtime.timers import Timers, now_ms

# About 2 MB. Beyond this the oldest are dropped; their leases expire by themselves.
MAX_RETRIED = 10_000

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Retried:
    operation: str
    request: Message
    until_ms: float
    then: Callable[[Any], None]
    traceparent: str
    patient: bool
    pause: float = PAUSE_MIN_S


class Retries:
    """Operations that are sent again until they are answered or their time is over.

    They cost no task.

    Args:
        send: sends an operation; may raise the same errors as the future that it returns.
        counts: what becomes of operations is counted there.
    """

    def __init__(self, *, send: Callable[..., asyncio.Future[Any]], counts: PoolCounts) -> None:
        self._send = send
        self._counts = counts
        self._retried: OrderedDict[int, _Retried] = OrderedDict()
        self._next = 0
        self._none_left = asyncio.Event()
        self._timers: Timers[int, None] = Timers(on_due=self._again, clock=now_ms)

    def __len__(self) -> int:
        return len(self._retried)

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
        """Calls `then` with the response, or with None if there will be none."""
        if len(self._retried) >= MAX_RETRIED:
            self._counts.dropped += 1
            self._end(next(iter(self._retried)), None)
        self._next += 1
        until_ms = now_ms() + give_up_after_ms
        self._retried[self._next] = _Retried(
            operation, request, until_ms, then, traceparent, patient
        )
        self._try(self._next)

    async def settle(self, within_s: float) -> None:
        """Returns when no operation is left, or after that time."""
        self._none_left.clear()
        if self._retried:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._none_left.wait(), within_s)

    def end_all(self) -> None:
        """Gives up every operation."""
        for number in list(self._retried):
            self._end(number, None)
        self._timers.close()

    def _try(self, number: int) -> None:
        retried = self._retried[number]
        try:
            future = self._send(
                retried.operation, retried.request, retried.traceparent, patient=retried.patient
            )
        except errors.LinguaError as error:
            self._failed(number, error)
        else:
            future.add_done_callback(partial(self._tried, number))

    def _tried(self, number: int, future: asyncio.Future[Any]) -> None:
        error = future.exception()
        if number not in self._retried:
            return
        if error is None:
            self._end(number, future.result())
        else:
            self._failed(number, error)

    def _failed(self, number: int, error: BaseException) -> None:
        retried, now = self._retried[number], now_ms()
        if not isinstance(error, errors.DependencyDownError | errors.DrainingError):
            self._counts.refused += 1
            facts = {"operation": retried.operation, "reason": str(error)}
            _log.warning("pool operation refused", extra=facts)
            self._end(number, None)
        elif now >= retried.until_ms:
            self._counts.given_up += 1
            self._end(number, None)
        else:
            # Many clients lose the same instance at the same moment.
            pause_ms = retried.pause * random.uniform(0.5, 1.0) * 1000
            retried.pause = min(2 * retried.pause, PAUSE_MAX_S)
            self._timers.set(number, None, min(now + pause_ms, retried.until_ms))

    def _again(self, number: int, _: None) -> None:
        if number in self._retried:
            self._counts.retries += 1
            self._try(number)

    def _end(self, number: int, response: Message | None) -> None:
        retried = self._retried.pop(number)
        if not self._retried:
            self._none_left.set()
        if response is not None:
            retried.then(response)
        else:
            # Later: the caller may be in the middle of something.
            asyncio.get_running_loop().call_soon(retried.then, None)
