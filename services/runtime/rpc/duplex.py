"""Runs the two halves of a stream: one reads what the peer sends, one writes what is queued."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any

Half = Coroutine[Any, Any, None]


async def run_duplex(*, read: Half, write: Half, cut: asyncio.Event | None = None) -> None:
    """Runs both halves of a stream at once, until one of them ends or the stream is cut.

    Promises:
    - It returns when `read` or `write` returns or `cut` is set, whichever comes first. Whatever has
      not ended by then is cancelled. To write all that is queued, do not let `read` return: close
      the queue, let `write` return, and set `cut` a little later in case the peer does not read.
    - When it returns or raises, both halves have ended, even if the caller is cancelled, once or
      twice. So the caller can free what the halves use.
    - The error of a half is raised as it is: a `LinguaError` becomes the stream's status, and the
      interceptors handle what gRPC raises if the peer is gone. If both halves fail, the error of
      the one that ended first is raised; if they end together, that of `read`.
    - A cancellation that leaks out of a half is an error like any other. It never looks like a
      stream that ended well.

    A half has to end soon when it is cancelled, and must not suppress the cancellation.

    Args:
        read: takes in what the peer sends; returns at the end of the stream.
        write: writes what is queued for the peer; returns when nothing more will come.
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
    """Waits until all tasks have ended, even if cancelled meanwhile; then raises CancelledError."""
    cancelled = False
    while pending := [task for task in tasks if not task.done()]:
        try:
            await asyncio.wait(pending)
        except asyncio.CancelledError:
            cancelled = True
    for task in tasks:
        if not task.cancelled():
            task.exception()  # retrieved, or asyncio logs an error that nobody will raise
    if cancelled:
        raise asyncio.CancelledError
