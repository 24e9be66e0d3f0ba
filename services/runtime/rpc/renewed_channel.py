"""The channel to another service, made anew from time to time."""

import asyncio
import logging
import math
import random
from collections import Counter
from collections.abc import Awaitable, Callable

import grpc

from lingua_scheduler.services.runtime.rpc.channels import Lines

# How often it is looked whether certificates have changed.
_LOOK_S = 1.0
# After a new channel could not be used.
_AGAIN_S = 10.0
# A new channel connects to all addresses of a name, and a call goes to one of those that it has
# reached. With a moment for that, far instances are chosen as often as near ones.
_SETTLE_S = 0.2
# Instances that are asked in a row when another one is looked for: calls of a channel go to each in
# turn. And the pause before that is done again, from the first time to any later one.
_ASKED = 3
_LOOK_AGAIN_MIN_S, _LOOK_AGAIN_MAX_S = 0.2, 5.0

Connect = Callable[[grpc.aio.Channel], Awaitable[bool]]

_log = logging.getLogger(__name__)


class RenewedChannel:
    """A channel to one address, and another in its place when it is old.

    gRPC looks a name up again only when a connection breaks, and keeps the certificates with which
    a channel was made. So added instances and new certificates are found by a new channel only.

    Promises:
    - There is always a channel. Where a stream cannot be opened on a new one, the old one stays in
      use, and it is tried again later.
    - Where another instance is looked for (`look_elsewhere`), the old channel stays as well until a
      stream can be opened to a better one; it is looked for at once, then less and less often.
    - After `forsake` the next stream gets a new connection: gRPC goes on using one whose peer is
      frozen, since nothing breaks it, but does not use a new one before the peer has answered.
    - An old channel is closed when nobody holds it, and calls that are still under way on it have
      `grace_s` to end.

    Args:
        address: of whom it calls; of several, each new channel may prefer another one.
        lines: how it is called.
        renew_ms: how old a channel becomes, a fifth more or less; 0: any age, unless the
            certificates change.
        grace_s: how long a call may last that nobody holds a channel for.
    """

    def __init__(self, *, address: str, lines: Lines, renew_ms: int, grace_s: float = 0.0) -> None:
        self.address = address
        """Of the service."""
        self.lines = lines
        """How the service is called."""
        self._renew_s = renew_ms / 1000 if renew_ms else math.inf
        self._grace_s = grace_s
        self._current: grpc.aio.Channel | None = None
        self._holders: Counter[grpc.aio.Channel] = Counter()
        # When the current one is old, and until when it is not replaced in any case.
        self._old_at = self._not_before = -math.inf
        # Whether nobody answers on the current one.
        self._forsaken = False
        # Whether another instance is wanted, and from when on one may be looked for again.
        self._elsewhere = asyncio.Event()
        self._look_from, self._look_pause = -math.inf, 0.0

    @property
    def is_open(self) -> bool:
        """Whether there is a channel."""
        return self._current is not None

    @property
    def channels(self) -> int:
        """How many there are: more than one while streams end on old ones."""
        return len({self._current, *self._holders} - {None})

    def open(self) -> grpc.aio.Channel:
        """Makes the first channel."""
        self._use(self.lines.channel(self.address))
        return self.current

    async def close(self) -> None:
        """Closes all channels at once."""
        channels = {self._current, *self._holders}
        self._current = None
        self._holders.clear()
        for channel in channels:
            if channel is not None:
                await channel.close()

    @property
    def current(self) -> grpc.aio.Channel:
        """The channel for new calls."""
        assert self._current is not None, "it is not open"
        return self._current

    def hold(self, channel: grpc.aio.Channel) -> None:
        """It is needed until `let_go`, old or not."""
        self._holders[channel] += 1

    async def let_go(self, channel: grpc.aio.Channel) -> None:
        """Somebody who held it needs it no more."""
        self._holders[channel] -= 1
        await self._close_unused(channel)

    async def reconnect(self, connect: Connect) -> bool:
        """Opens a stream where there is none; whether that went well."""
        old = self.current
        # With certificates that are no longer good it might never go well.
        if self._forsaken or self.lines.certificates_changed(old):
            self._use(self.lines.channel(self.address))
            await self._close_unused(old)
        return await connect(self.current)

    def forsake(self) -> None:
        """Nobody answers on the current channel: `reconnect` makes a new one."""
        self._forsaken = True

    def look_elsewhere(self) -> None:
        """The instance at the other end is of no use now; to be said again while that is so."""
        self._elsewhere.set()

    async def renew_until(self, lost: asyncio.Event, connect: Connect) -> None:
        """Opens another stream, on a new channel, each time that the current one is old or no good.

        Args:
            lost: set when there is no stream any more; then it returns.
            connect: opens a stream on a channel; False where that could not be.
        """
        while not await self._is_over(lost):
            asked = self._begin_look() if self._elsewhere.is_set() else 1
            old, new = self.current, self.lines.channel(self.address)
            self.hold(new)
            try:
                new.get_state(try_to_connect=True)
                if await _is_set_within(lost, _SETTLE_S):
                    return
                if await _any_of(connect, new, asked):
                    self._use(new)
                    await self._close_unused(old)
                else:
                    self._not_before = _now() + _AGAIN_S * random.uniform(0.8, 1.2)
                    _log.warning("no new connection to %s; the old one stays", self.address)
            finally:
                await self.let_go(new)

    async def _is_over(self, lost: asyncio.Event) -> bool:
        """Waits until a new channel is due, or `lost` is set."""
        while not lost.is_set():
            now = _now()
            due = now >= self._old_at or self.lines.certificates_changed(self.current)
            if due and now >= self._not_before:
                return False
            if now < self._look_from:
                # Whether it is still so will be said again.
                self._elsewhere.clear()
            elif self._elsewhere.is_set():
                return False
            next_at = max(min(self._old_at, now + _LOOK_S), self._not_before)
            if now < self._look_from:
                await _is_set_within(lost, min(next_at, self._look_from) - now)
            else:
                await _is_set_within(lost, next_at - now, self._elsewhere)
        return True

    def _begin_look(self) -> int:
        """Puts the next look off, for longer than this one was; returns how many are asked."""
        self._elsewhere.clear()
        now = _now()
        if now - self._look_from > _LOOK_AGAIN_MAX_S:
            self._look_pause = 0.0
        self._look_pause = min(max(2 * self._look_pause, _LOOK_AGAIN_MIN_S), _LOOK_AGAIN_MAX_S)
        self._look_from = now + self._look_pause * random.uniform(0.8, 1.2)
        return _ASKED

    def _use(self, channel: grpc.aio.Channel) -> None:
        self._current, self._forsaken = channel, False
        # What was said of the one before it does not count any more.
        self._elsewhere.clear()
        # Many are started together, and should not all change at the same moment.
        self._old_at = _now() + self._renew_s * random.uniform(0.8, 1.2)
        self._not_before = -math.inf

    async def _close_unused(self, channel: grpc.aio.Channel) -> None:
        if self._holders[channel] <= 0:
            del self._holders[channel]
            if channel is not self._current:
                await channel.close(self._grace_s)


async def _is_set_within(
    event: asyncio.Event, seconds: float, other: asyncio.Event | None = None
) -> bool:
    """Whether the event is set; returns when it or the other one is, or that time is over."""
    waiting = [asyncio.create_task(each.wait()) for each in (event, other) if each is not None]
    try:
        await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()
    return event.is_set()


async def _any_of(connect: Connect, channel: grpc.aio.Channel, times: int) -> bool:
    for _ in range(times):
        if await connect(channel):
            return True
    return False


def _now() -> float:
    return asyncio.get_running_loop().time()
