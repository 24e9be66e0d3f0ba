"""The two halves of a stream's handler: one reads what the peer sends, one writes what waits."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any

Half = Coroutine[Any, Any, None]


async def run_duplex(*, read: Half, write: Half, cut: asyncio.Event | None = None) -> None:
    """Runs both halves of a stream at once, until one of them ends or the stream is cut.

    Promises:
    - It returns when `read` or `write` has returned, or `cut` is set, whichever comes first. What
      has not ended by then is cancelled, wherever it is. To write all that is queued, close the
      queue and let `write` come to its end, with `cut` set a little later for a peer that does not
      read; not by letting `read` return.
    - When it returns or raises, both halves have ended; none is left behind, not even when the
      caller is cancelled, be it twice. So what they use can be given up in the lines after it.
    - The error of a half is raised as it is: a `LinguaError` is the stream's status, and what gRPC
      raises because the peer has gone is understood by the frame around every call. Where both
      fail, that of the half that ended first counts, and of two at the same time the reader's.
    - A cancellation that leaks out of a half is an error like any other; it never looks like a
      stream that has ended well.

    A half has to end soon when it is cancelled, and should suppress no cancellation.

    Args:
        read: takes in what the peer sends; returns when the peer has said all.
        write: writes what waits for the peer; returns when nothing will come any more.
        cut: set it to end the stream at once, whatever is left to read or to write.
    """
    reading, writing = asyncio.create_task(read), asyncio.create_task(write)
    tasks = [reading, writing]
    if cut is not None:
        tasks.append(asyncio.create_task(_until(cut)))
    try:
        first, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await all_ended(tasks)
    halves = (reading, writing)
    for half in halves:
        if half in first:
            half.result()
    for half in halves:
        if not half.cancelled():
            half.result()


async def _until(event: asyncio.Event) -> None:
    await event.wait()


async def all_ended(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Waits until they have ended, also if it is cancelled meanwhile; then it passes that on."""
    cancelled = False
    while pending := [task for task in tasks if not task.done()]:
        try:
            await asyncio.wait(pending)
        except asyncio.CancelledError:
            cancelled = True
    for task in tasks:
        if not task.cancelled():
            task.exception()  # asked for, or asyncio complains of one that nobody will raise
    if cancelled:
        raise asyncio.CancelledError
