"""The channel to another service, which is replaced from time to time."""

import asyncio
import logging
import math
import random
from collections import Counter
from collections.abc import Awaitable, Callable

import grpc

from lingua_scheduler.services.runtime.rpc.channels import Dialer

# How often certificates are checked for changes.
_CHECK_S = 1.0
# The pause after a new channel could not be used.
_RETRY_S = 10.0
# A new channel connects to all addresses of a name, and a call goes to one of those that it has
# reached. After this time, distant instances are chosen as often as near ones.
_SETTLE_S = 0.2
# How many instances are asked in a row when a better one is looked for: the calls of a channel go
# to each in turn. Then the pause before the next search, which doubles each time.
_ASKED = 3
_SEARCH_PAUSE_MIN_S, _SEARCH_PAUSE_MAX_S = 0.2, 5.0

Connect = Callable[[grpc.aio.Channel], Awaitable[bool]]

_log = logging.getLogger(__name__)


class RenewedChannel:
    """A channel to one address, which is replaced when it is old.

    gRPC resolves a name again only when a connection breaks, and a channel keeps the certificates
    that it was made with. So only a new channel finds added instances and new certificates.

    Promises:
    - There is always a channel. If a stream cannot be opened on a new one, the old one stays in
      use, and replacing it is tried again later.
    - If another instance is looked for (`look_elsewhere`), the old channel stays in use until a
      stream is open to a better instance. The first search begins at once, later ones after
      growing pauses.
    - After `mark_frozen` the next stream gets a new connection. gRPC keeps using a connection whose
      peer is frozen, because nothing breaks it, but it does not use a new connection before the
      peer has answered.
    - An old channel is closed when nobody holds it. Calls that are still under way on it have
      `grace_s` to end.

    Args:
        address: of the service; if there are several, each new channel may prefer another one.
        dialer: makes the channels.
        renew_ms: the age at which a channel is replaced, give or take a fifth; 0: only if the
            certificates change.
        grace_s: how long calls may last for which nobody holds a channel.
    """

    def __init__(
        self, *, address: str, dialer: Dialer, renew_ms: int, grace_s: float = 0.0
    ) -> None:
        self.address = address
        """Of the service."""
        self.dialer = dialer
        """Makes the channels, and what calls on them carry."""
        self._renew_s = renew_ms / 1000 if renew_ms else math.inf
        self._grace_s = grace_s
        self._current: grpc.aio.Channel | None = None
        self._holders: Counter[grpc.aio.Channel] = Counter()
        # When the current channel is old, and until when it is not replaced in any case.
        self._old_at = self._not_before = -math.inf
        # Whether nobody answers on the current channel.
        self._frozen = False
        # Whether another instance is wanted, and when the next search may begin.
        self._elsewhere = asyncio.Event()
        self._search_from, self._search_pause = -math.inf, 0.0
        self.is_searching = False
        """Whether streams are being opened in search of a better instance."""

    @property
    def is_open(self) -> bool:
        """Whether there is a channel."""
        return self._current is not None

    @property
    def channels(self) -> int:
        """How many there are: more than one while streams on old ones end."""
        return len({self._current, *self._holders} - {None})

    def open(self) -> grpc.aio.Channel:
        """Makes the first channel."""
        self._use(self.dialer.channel(self.address))
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
        """Keeps a channel open until `release`, old or not."""
        self._holders[channel] += 1

    async def release(self, channel: grpc.aio.Channel) -> None:
        """Ends one `hold` of a channel."""
        self._holders[channel] -= 1
        await self._close_unused(channel)

    async def reconnect(self, connect: Connect) -> bool:
        """Opens a stream if there is none. Returns whether that succeeded."""
        old = self.current
        # With certificates that are no longer valid it might never succeed.
        if self._frozen or self.dialer.certificates_changed(old):
            self._use(self.dialer.channel(self.address))
            await self._close_unused(old)
        return await connect(self.current)

    def mark_frozen(self) -> None:
        """Nobody answers on the current channel: `reconnect` makes a new one."""
        self._frozen = True

    def look_elsewhere(self) -> None:
        """The instance at the other end is of no use now; to be called again while that is so."""
        self._elsewhere.set()

    async def renew_until(self, lost: asyncio.Event, connect: Connect) -> None:
        """Opens a stream on a new channel whenever the current one is old or of no use.

        Args:
            lost: set when there is no stream any more; then this returns.
            connect: opens a stream on a channel; returns whether that succeeded.
        """
        while not await self._is_over(lost):
            asked = self._begin_search() if self._elsewhere.is_set() else 1
            old, new = self.current, self.dialer.channel(self.address)
            self.hold(new)
            try:
                new.get_state(try_to_connect=True)
                if await _is_set_within(lost, _SETTLE_S):
                    return
                self.is_searching = asked > 1
                if await _any_of(connect, new, asked):
                    self._use(new)
                    await self._close_unused(old)
                elif not self.is_searching:
                    self._not_before = _now() + _RETRY_S * random.uniform(0.8, 1.2)
                    _log.warning("connection not renewed", extra={"address": self.address})
            finally:
                self.is_searching = False
                await self.release(new)

    async def _is_over(self, lost: asyncio.Event) -> bool:
        """Waits until a new channel is due, or `lost` is set."""
        while not lost.is_set():
            now = _now()
            due = now >= self._old_at or self.dialer.certificates_changed(self.current)
            if due and now >= self._not_before:
                return False
            if now < self._search_from:
                # If it is still wanted then, `look_elsewhere` will have been called again.
                self._elsewhere.clear()
            elif self._elsewhere.is_set():
                return False
            next_at = max(min(self._old_at, now + _CHECK_S), self._not_before)
            if now < self._search_from:
                await _is_set_within(lost, min(next_at, self._search_from) - now)
            else:
                await _is_set_within(lost, next_at - now, self._elsewhere)
        return True

    def _begin_search(self) -> int:
        """Sets the pause before the next search; returns how many instances are asked."""
        self._elsewhere.clear()
        now = _now()
        if now - self._search_from > _SEARCH_PAUSE_MAX_S:
            self._search_pause = 0.0
        pause = min(max(2 * self._search_pause, _SEARCH_PAUSE_MIN_S), _SEARCH_PAUSE_MAX_S)
        self._search_pause = pause
        self._search_from = now + pause * random.uniform(0.8, 1.2)
        return _ASKED

    def _use(self, channel: grpc.aio.Channel) -> None:
        self._current, self._frozen = channel, False
        # It was asked for because of the channel before this one.
        self._elsewhere.clear()
        # Many services start together, and should not all renew at the same moment.
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
    """Waits until either event is set or the time is over; returns whether the first is set."""
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
