"""Listens to a room until it is closed, or until the listener is stopped."""

import asyncio
import contextlib
from collections.abc import Callable

from lingua_scheduler.sdk import Listener, RoomEvent
from lingua_scheduler.services.runtime.signals import stop_signals


async def listen(
    listener: Listener,
    *,
    joined: Callable[[], None],
    hear: Callable[[RoomEvent], None],
    seconds: float | None,
) -> None:
    """Join the room and listen. Ctrl-C leaves the room; a second one ends the process.

    Args:
        listener: one that has not joined yet.
        joined: called when the listener is in the room.
        hear: called with every event.
        seconds: leave after this time; None: stay.

    Raises:
        RoomError: the listener could not join, or could not stay.
    """
    with stop_signals() as stopping:
        async with listener:
            joined()
            hearing = asyncio.create_task(_hear(listener, hear))
            stopped = asyncio.create_task(stopping.wait())
            try:
                await asyncio.wait(
                    (hearing, stopped), timeout=seconds, return_when=asyncio.FIRST_COMPLETED
                )
                if not hearing.done():
                    await listener.leave()
                await hearing
            finally:
                for task in (hearing, stopped):
                    task.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        await asyncio.wait([task])


async def _hear(listener: Listener, hear: Callable[[RoomEvent], None]) -> None:
    async for event in listener.events():
        hear(event)
