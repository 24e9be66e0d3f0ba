"""WatchFleet: tells watchers about all nodes, and then about every change."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import grpc

from lingua_scheduler.services.pool_service.fleet.fleet_messages import messages
from lingua_scheduler.services.pool_service.fleet.sample import KnownFleet
from lingua_scheduler.services.pool_service.fleet.sampler import FleetSampler
from lingua_scheduler.services.runtime.errors import (
    BackpressureError,
    DrainingError,
    InternalError,
    LinguaError,
)
from lingua_scheduler.services.runtime.rpc.duplex import run_duplex
from lingua_scheduler.services.runtime.rpc.message_sizes import batch_bytes
from lingua_scheduler.services.runtime.tasks import BackgroundTasks
from lingua_scheduler.v1 import pool_pb2

# If a sample takes longer than a twentieth of the interval, the interval grows, up to a limit:
# sampling takes no more than that share of the time unless nodes are so many that nobody would call
# it watching. Even then it takes no more than half of the time.
_REST, _SLOWEST_S, _REST_AT_LEAST = 20, 10.0, 2
# A watcher gets at least one message in this time or in this many intervals, whichever is less, so
# that it notices if the service is frozen.
_TELL_EVERY_S, _TELL_EVERY = 5.0, 2.5
# How long a watcher may take to read one message.
_READ_WITHIN_S = 30.0
MAX_WATCHERS = 16

_log = logging.getLogger(__name__)


def interval_s(every_s: float, took_s: float) -> float:
    """From the begin of a sample to the begin of the next.

    Args:
        every_s: how often samples are wanted.
        took_s: how long the last one took.
    """
    return max(every_s, min(_REST * took_s, _SLOWEST_S), _REST_AT_LEAST * took_s)


def tell_every_s(every_s: float) -> float:
    """The longest time between two messages, if there is a sample every so many seconds."""
    return min(_TELL_EVERY_S, _TELL_EVERY * every_s)


@dataclass(slots=True, eq=False)
class _Watcher:
    """A stream.

    Attributes:
        known: the number of the sample that it knows completely; 0: none.
        sent: the capability sets that it has, by id.
        sampled: set when there is a new sample.
        cut: set to end the stream.
        failure: why it was cut.
    """

    known: int = 0
    sent: dict[str, pool_pb2.CapabilitySet] = field(default_factory=dict)
    sampled: asyncio.Event = field(default_factory=asyncio.Event)
    cut: asyncio.Event = field(default_factory=asyncio.Event)
    failure: LinguaError | None = None

    def end(self, failure: LinguaError) -> None:
        """Ends the stream with this status."""
        self.failure = self.failure or failure
        self.cut.set()


class FleetWatch:
    """Serves the WatchFleet streams of a process.

    One task samples the fleet for all of them, and only while there is at least one. Nothing is
    queued for a watcher: each writes, at its own pace, what has changed since the sample that it
    knows. A slow one skips samples and holds up nobody; one that stops reading is cut off.

    Args:
        sampler: reads the fleet.
        max_message_bytes: of a message to a watcher.
        every_s: how often the fleet is sampled, unless a sample takes long.
        on_sample: called after each sample with its duration in seconds.
    """

    def __init__(
        self,
        *,
        sampler: FleetSampler,
        max_message_bytes: int,
        every_s: float,
        on_sample: Callable[[float], None],
    ) -> None:
        self._sampler = sampler
        self._max_bytes = batch_bytes(max_message_bytes)
        self._every_s = every_s
        self._tell_every_s = tell_every_s(every_s)
        self._on_sample = on_sample
        self._watchers: set[_Watcher] = set()
        self._fleet: KnownFleet | None = None
        self._tasks = BackgroundTasks()
        self._is_draining = False

    def __len__(self) -> int:
        """Number of watchers."""
        return len(self._watchers)

    async def serve(
        self,
        requests: AsyncIterator[pool_pb2.WatchFleetRequest],
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> None:
        """Serves a stream until its caller ends it.

        Raises:
            BackpressureError: there are too many watchers, or this one does not read.
            DrainingError: this process is draining.
            DependencyDownError: Redis cannot be used.
        """
        if self._is_draining:
            raise _draining()
        if len(self._watchers) >= MAX_WATCHERS:
            raise BackpressureError(
                f"this pool service has {MAX_WATCHERS} WatchFleet streams already; close one, or "
                "watch at another instance"
            )
        watcher = _Watcher()
        fleet = self._join(watcher)
        write = self._write(watcher, fleet, context)
        try:
            await run_duplex(read=_until_end(requests), write=write, cut=watcher.cut)
        finally:
            self._watchers.discard(watcher)
        if watcher.failure is not None:
            raise watcher.failure

    def drain(self) -> None:
        """Ends all streams, and accepts no more."""
        self._is_draining = True
        self._end_all(_draining())

    async def close(self) -> None:
        """Waits for the end of the sampling."""
        await self._tasks.cancel()

    def _join(self, watcher: _Watcher) -> KnownFleet:
        self._watchers.add(watcher)
        if self._fleet is None:
            self._fleet = self._sampler.new_fleet()
            self._tasks.spawn(self._sample(self._fleet))
        return self._fleet

    async def _sample(self, fleet: KnownFleet) -> None:
        """Takes samples while there are watchers.

        After the last has left, the fleet is kept until the next sample would be due, so that
        watchers who come and go in quick succession cause no more samples than one who stays.
        """
        loop = asyncio.get_running_loop()
        try:
            while self._watchers:
                began = loop.time()
                sample = await self._sampler.sample(fleet)
                known = (each.known for each in self._watchers if each.known)
                fleet.end(sample, oldest=min(known, default=fleet.number))
                for watcher in self._watchers:
                    watcher.sampled.set()
                took = loop.time() - began
                self._on_sample(took)
                await asyncio.sleep(interval_s(self._every_s, took) - took)
            self._fleet = None
            return
        except LinguaError as error:
            failure = error
        except Exception:
            _log.exception("sampling the fleet failed")
            failure = InternalError("the fleet cannot be read")
        self._fleet = None
        self._end_all(failure)

    def _end_all(self, failure: LinguaError) -> None:
        for watcher in self._watchers:
            watcher.end(failure)

    async def _write(
        self,
        watcher: _Watcher,
        fleet: KnownFleet,
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> None:
        if fleet.number == 0:
            await self._wait(watcher, fleet)
        while True:
            for message in self._news(watcher, fleet):
                await _send(context, message)
            await self._wait(watcher, fleet)

    async def _wait(self, watcher: _Watcher, fleet: KnownFleet) -> None:
        """Returns when there is a change to tell, or it is time to say that there is none."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._tell_every_s):
                await self._changed(watcher, fleet)

    async def _changed(self, watcher: _Watcher, fleet: KnownFleet) -> None:
        """Returns when the watcher does not know all nodes as they are."""
        while True:
            await watcher.sampled.wait()
            watcher.sampled.clear()
            if watcher.known == 0 or fleet.has_changed_since(watcher.known):
                return
            watcher.known = fleet.number

    def _news(self, watcher: _Watcher, fleet: KnownFleet) -> Iterator[pool_pb2.WatchFleetResponse]:
        """The messages about all that the watcher does not know yet."""
        if fleet.number == 0:
            # The first sample takes long.
            return iter((pool_pb2.WatchFleetResponse(),))
        changes, watcher.known = fleet.since(watcher.known), fleet.number
        if len(watcher.sent) > len(fleet.sets):
            # A set that no node has is forgotten, here as by the watcher.
            watcher.sent = {
                known_id: each
                for known_id, each in watcher.sent.items()
                if fleet.sets.get(known_id) is each
            }
        return messages(changes, watcher.sent, self._max_bytes)


async def _until_end(requests: AsyncIterator[pool_pb2.WatchFleetRequest]) -> None:
    async for _ in requests:
        pass


async def _send(
    context: grpc.aio.ServicerContext[Any, Any], message: pool_pb2.WatchFleetResponse
) -> None:
    try:
        async with asyncio.timeout(_READ_WITHIN_S):
            await context.write(message)
    except TimeoutError:
        _log.warning("fleet watcher cut off")
        problem = f"the watcher has not read a message within {_READ_WITHIN_S:g} s"
        raise BackpressureError(problem) from None


def _draining() -> DrainingError:
    return DrainingError("this pool service is draining; watch at another instance")
