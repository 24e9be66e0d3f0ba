"""Files spoken into a session, and what is heard of it, until all is delivered."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import click

from lingua_scheduler.sdk import Event, Session
from lingua_scheduler.services.runtime.signals import stop_signals


async def speak(
    session: Session,
    files: Sequence[Path],
    *,
    pause_s: float | None,
    fast: bool,
    opened: Callable[[], None],
    hear: Callable[[Event], None],
) -> bool:
    """Speaks files one after the other; returns when everything that was said is delivered.

    Ctrl-C ends the speech where it is: what was said is still finalized and delivered. A second one
    ends the process.

    Args:
        session: not opened yet.
        files: in the session's format.
        pause_s: the silence between two files; None: each is said to be finished instead.
        fast: not at the pace of speech, but as fast as the gateway takes it.
        opened: called when the session is open.
        hear: called with all that happens.

    Returns:
        Whether all of it was spoken.

    Raises:
        SessionError: the session could not be opened, or was lost.
    """
    heard = asyncio.create_task(asyncio.sleep(0))
    with stop_signals() as stopping:
        try:
            async with session:
                opened()
                heard = asyncio.create_task(_hear(session, hear))
                whole = await _until_stopped(_say(session, files, pause_s, fast), stopping)
                if not whole:
                    click.echo("Finishing what was said; once more ends at once.", err=True)
        finally:
            # The session is over, so this ends; a loss is raised by the block above already.
            await asyncio.gather(heard, return_exceptions=True)
        heard.result()
    return whole


async def _say(session: Session, files: Sequence[Path], pause_s: float | None, fast: bool) -> None:
    for left, path in zip(range(len(files) - 1, -1, -1), files, strict=True):
        await session.send_file(path, pace=not fast)
        if left and pause_s is not None:
            await asyncio.sleep(pause_s)
        else:
            await session.finish()
        if left and pause_s is None:
            # What is sent within the hangover would still join the utterance that has ended.
            await session.drained()


async def _hear(session: Session, hear: Callable[[Event], None]) -> None:
    async for event in session.events():
        hear(event)


async def _until_stopped(work: Coroutine[Any, Any, None], stopping: asyncio.Event) -> bool:
    """Whether the work came to its end before it was told to stop."""
    working = asyncio.create_task(work)
    told = asyncio.create_task(stopping.wait())
    try:
        await asyncio.wait((working, told), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
            return True
        working.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await working
        return False
    finally:
        told.cancel()
