"""One listener that is connected here: what waits for it, and when its stream ends."""

import asyncio
from collections.abc import Awaitable
from typing import Protocol

from lingua_scheduler.services.runtime import errors
from lingua_scheduler.services.runtime.rpc.outbox import Outbox
from lingua_scheduler.services.session_gateway.rooms.packing import (
    SIGN_OF_LIFE,
    Packed,
    packed_event,
)
from lingua_scheduler.services.session_gateway.rooms.records import MemberRecord

# Bounds of what waits for a listener that reads slowly. Beyond, its stream ends; it can resume.
_MAX_EVENTS = 500
_MAX_BYTES = 8 * 1024 * 1024
# How long a stream that ends may take to write the messages that wait.
_FLUSH_S = 2.0


class ListenerClient(Protocol):
    """A listener's connection, whatever its transport."""

    transport: str
    """Its transport, as a label in metrics."""

    def write_now(self, packed: Packed) -> bool:
        """Writes a message at once; False if that would have to wait, and it has not."""

    def write(self, packed: Packed) -> Awaitable[None]:
        """Writes a message. Returns when there is room for the next one."""


class Listener:
    """The stream of one listener.

    Args:
        client: its connection.
        room_id: of its room.
        member: as Redis knows it.
        wants_status: whether it asked for RoomStatus.
    """

    def __init__(
        self, *, client: ListenerClient, room_id: str, member: MemberRecord, wants_status: bool
    ) -> None:
        self.client = client
        self.room_id = room_id
        self.member = member
        self.wants_status = wants_status
        self.ended: errors.LinguaError | None = None
        """The error that ended its stream; None if there was none."""
        self.has_left = False
        """Whether it said that it leaves, or its room was closed."""
        self.is_over = False
        """Whether its stream ends: nothing more is sent."""
        self.cut = asyncio.Event()
        """Set when the stream has to end at once."""
        self._outbox: Outbox[Packed] = Outbox(
            max_events=_MAX_EVENTS, max_bytes=_MAX_BYTES, max_take_events=1
        )
        self._is_writing = False
        self._loop = asyncio.get_running_loop()
        self._sent_s = self._loop.time()

    def send(self, packed: Packed) -> bool:
        """Sends a message, or queues it. Returns False if it does not fit: it reads too slowly."""
        if self.is_over:
            return True
        self._sent_s = self._loop.time()
        if not self._is_writing and not self._outbox and self.client.write_now(packed):
            return True
        if self._outbox.put(packed, packed.size):
            return True
        self.end(errors.BackpressureError("the listener does not read its messages"))
        return False

    def keep_alive(self, now_s: float, every_s: float) -> None:
        """Sends a sign of life if nothing else was sent for so long."""
        if now_s - self._sent_s >= every_s:
            self._sent_s = now_s
            if self.is_over or self._is_writing or self._outbox:
                return
            if not self.client.write_now(SIGN_OF_LIFE):
                self._outbox.put(SIGN_OF_LIFE, 0, droppable=True)

    async def write(self) -> None:
        """Writes what is queued, until the stream ends."""
        while messages := await self._outbox.take():
            self._is_writing = True
            for packed in messages:
                await self.client.write(packed)
            self._is_writing = False

    def fail(self, why: errors.LinguaError) -> None:
        """Tells the listener of an error, and ends the stream with it."""
        self.send(packed_event(error=errors.to_proto(why)))
        self.end(why)

    def end(self, why: errors.LinguaError | None = None) -> None:
        """Ends the stream when what is queued is written, and soon in any case."""
        if not self.is_over:
            self.is_over, self.ended = True, why
            self._outbox.close()
            self._loop.call_later(_FLUSH_S, self.cut.set)
