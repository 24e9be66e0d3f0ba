"""Sends files or a microphone to a session, and reads events until everything is delivered."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import click

from lingua_scheduler.cli.speak.speech_files import length_s
from lingua_scheduler.cli.speak.voice_activity import Heard, VoiceActivity
from lingua_scheduler.sdk import Event, Session
from lingua_scheduler.sdk.session.files import wav_blocks
from lingua_scheduler.services.runtime.signals import stop_signals

# By then the gateway has cut, even if no node takes the utterance: its hangover is shorter.
_CUT_WITHIN_S = 1.0
_BLOCK_MS = 100
# How often a person is told how much was spoken.
_TELL_S = 0.25

Say = Callable[[Session], Coroutine[Any, Any, None]]


async def speak(
    session: Session,
    say: Say,
    *,
    opened: Callable[[], None],
    hear: Callable[[Event], None],
) -> bool:
    """Speak; returns when everything that was said is delivered.

    Ctrl-C ends the speech; what was said is still finalized and delivered. A second one ends the
    process.

    Args:
        session: a session that is not open yet.
        say: sends the speech.
        opened: called when the session is open.
        hear: called with every event.

    Returns:
        Whether everything was spoken.

    Raises:
        SessionError: the session could not be opened, or was lost.
    """
    heard = asyncio.create_task(asyncio.sleep(0))
    with stop_signals() as stopping:
        try:
            async with session:
                opened()
                heard = asyncio.create_task(_hear(session, hear))
                whole = await _until_stopped(say(session), stopping)
                if not whole:
                    click.echo(
                        "Finishing what was said; press Ctrl-C again to end at once.", err=True
                    )
        finally:
            # The session has ended, so this ends as well; the block above raises a loss.
            await asyncio.gather(heard, return_exceptions=True)
        heard.result()
    return whole


async def say_files(
    session: Session,
    files: Sequence[Path],
    *,
    pause_s: float | None,
    fast: bool,
    spoken: Callable[[str], None],
) -> None:
    """Send files, one after the other.

    Args:
        session: an open session.
        files: in the session's format.
        pause_s: silence between two files; None finishes the utterance after each instead.
        fast: send as fast as the gateway accepts, not at the pace of speech.
        spoken: called with how much was sent, for a person who waits.
    """
    for left, path in zip(range(len(files) - 1, -1, -1), files, strict=True):
        telling = asyncio.create_task(_tell(path, spoken))
        try:
            await session.send_file(path, pace=not fast)
        finally:
            telling.cancel()
        spoken("")
        if left and pause_s is not None:
            await asyncio.sleep(pause_s)
        else:
            await session.finish()
        if left and pause_s is None:
            # Audio that is sent during the hangover would still join the ended utterance.
            await session.drained()


async def _tell(path: Path, spoken: Callable[[str], None]) -> None:
    """Tells until it is cancelled how long a file has been spoken."""
    whole_s, start = length_s(path), time.monotonic()
    while True:
        now_s = min(whole_s, time.monotonic() - start)
        spoken(f"speaking {path.name}: {now_s:.0f} of {whole_s:.0f} s")
        await asyncio.sleep(_TELL_S)


async def say_all(session: Session, source: AsyncIterator[bytes]) -> None:
    """Send all audio of a microphone; the gateway detects the pauses."""
    await session.send_all(source)


async def say_hands_free(session: Session, source: AsyncIterator[bytes]) -> None:
    """Send only the speech in a stream of audio, and finish each utterance."""
    activity = VoiceActivity(session.audio_format)
    async for block in source:
        await _pass_on(session, activity.feed(block))
    await _pass_on(session, activity.end())


async def _pass_on(session: Session, heard: Sequence[Heard]) -> None:
    for each in heard:
        if each.audio:
            await session.send(each.audio)
        if each.ends:
            await session.finish()
            # Audio that is sent during the hangover would still join the ended utterance.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(session.drained(), _CUT_WITHIN_S)


async def files_as_heard(
    session: Session, files: Sequence[Path], *, pause_s: float | None, fast: bool
) -> AsyncIterator[bytes]:
    """The audio of files as from a microphone, with silence between them."""
    audio = session.audio_format
    silence = bytes(int(audio.sample_rate_hz * (pause_s or 0)) * 2 * audio.channels)
    start, sent_s = time.monotonic(), 0.0
    for path in files:
        blocks = wav_blocks(path, expected=audio, ms=_BLOCK_MS)
        async with contextlib.aclosing(blocks):
            async for block in blocks:
                sent_s += audio.duration_ms(len(block)) / 1000
                if not fast:
                    await asyncio.sleep(max(0.0, start + sent_s - time.monotonic()))
                yield block
        if silence:
            sent_s += audio.duration_ms(len(silence)) / 1000
            yield silence


async def _hear(session: Session, hear: Callable[[Event], None]) -> None:
    async for event in session.events():
        hear(event)


async def _until_stopped(work: Coroutine[Any, Any, None], stopping: asyncio.Event) -> bool:
    """Run the work; returns whether it ended before the stop signal."""
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
