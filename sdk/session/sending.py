"""How a session takes audio from the app. `Session` adds how it is opened, closed and heard."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterable, Callable, Iterable

from lingua_scheduler.sdk.audio import AudioFormat
from lingua_scheduler.sdk.errors import SessionLostError
from lingua_scheduler.sdk.session.chunks import Cutter
from lingua_scheduler.sdk.session.files import StrPath, wav_blocks
from lingua_scheduler.sdk.session.link import SessionLink
from lingua_scheduler.sdk.session.protocol import SessionProtocol
from lingua_scheduler.v1 import common_pb2

# Of a file that is not sent at the pace of speech, read at once.
_BLOCK_MS = 1000

Bytes = bytes | bytearray | memoryview


class SessionSending:
    """The sending half of a session.

    Args:
        protocol: what to say.
        cutter: makes chunks.
        audio_format: of all audio.
        chunk_ms: the length of a chunk.
        max_unacknowledged_bytes: more than this is not held.
    """

    def __init__(
        self,
        *,
        protocol: SessionProtocol,
        cutter: Cutter,
        audio_format: AudioFormat,
        chunk_ms: int,
        max_unacknowledged_bytes: int,
    ) -> None:
        self.audio_format = audio_format
        self._protocol = protocol
        self._cutter = cutter
        self._chunk_ms = chunk_ms
        self._max_unacknowledged = max_unacknowledged_bytes
        # Keeps the parts of one call together, in the order of the calls.
        self._sending = asyncio.Lock()
        self._link: SessionLink | None = None
        self._done = False
        self._failure: Exception | None = None

    async def send(
        self,
        data: Bytes,
        *,
        direction: tuple[str, str] | None = None,
        recorded_at: float | None = None,
    ) -> None:
        """Sends audio that was recorded just now.

        It returns when the audio is in the SDK's hands, which may take a while: it waits as long as
        more than `max_unacknowledged_bytes` are held. It works while there is no connection, too.

        Args:
            data: PCM, any number of bytes: a sample that is cut in two is put together again. Or
                one Opus packet.
            direction: who speaks, as (src, tgt). For a conversation it must be given.
            recorded_at: when the end of the data was recorded, in seconds since the epoch; now,
                unless given. A gap longer than a pause ends an utterance.

        Raises:
            ValueError: names the argument and what is wrong with it. Nothing was sent.
            SessionLostError: the session cannot go on.
        """
        end = time.time() if recorded_at is None else recorded_at
        await self._send(bytes(data), direction, end * 1000)

    async def send_all(
        self,
        source: AsyncIterable[Bytes] | Iterable[Bytes],
        *,
        direction: tuple[str, str] | None = None,
    ) -> None:
        """Sends all that an iterator gives, as it comes. Raises as `send`.

        One that is not async may block, as a microphone does: it runs in a thread.
        """
        if isinstance(source, AsyncIterable):
            async for data in source:
                await self.send(data, direction=direction)
        else:
            blocking = iter(source)
            while (piece := await asyncio.to_thread(next, blocking, None)) is not None:
                await self.send(piece, direction=direction)

    async def send_file(
        self, path: StrPath, *, direction: tuple[str, str] | None = None, pace: bool = True
    ) -> None:
        """Sends a WAV file of 16-bit PCM in the session's format (see `wav_format`).

        Args:
            path: of the file.
            direction: as for `send`.
            pace: as fast as it was spoken; False: as fast as the server takes it, with times that
                go on with the audio, so that no pause is seen where there is none.

        Raises:
            ValueError: the file is no WAV file, or in another format. And as `send`.
            OSError: it cannot be read.
        """
        loop = asyncio.get_running_loop()
        start, sent_ms = loop.time(), 0.0
        start_ms = self._cutter.stamp_after(time.time() * 1000)
        block_ms = self._chunk_ms if pace else _BLOCK_MS
        blocks = wav_blocks(path, expected=self.audio_format, ms=block_ms)
        async with contextlib.aclosing(blocks):
            async for block in blocks:
                sent_ms += self.audio_format.duration_ms(len(block))
                if pace:
                    await asyncio.sleep(start + sent_ms / 1000 - loop.time())
                await self._send(block, direction, start_ms + sent_ms)

    async def finish(self) -> None:
        """The speaker has finished: the utterance is cut here.

        What a microphone still delivers within the server's hangover (about 200 ms of audio) joins
        it. An app that speaks on at once, such as from files, awaits `drained` between.

        Raises:
            ValueError: the audio ended within a sample, whose bytes are forgotten now; or nothing
                was sent in a conversation, so there is nobody who could have finished.
            SessionLostError: the session cannot go on.
        """
        async with self._sending:
            self._check()
            if rest := self._cutter.take_rest():
                raise ValueError(f"data: the audio ends with {len(rest)} bytes of half a sample")
            self._cutter.check_finish()
            self._add(b"", self._cutter.stamp(time.time() * 1000), is_final=True)
        await asyncio.sleep(0)

    async def playback_started(self) -> None:
        """The app plays speech now: as long as it does, silence is no pause."""
        self._set_playing(True)

    async def playback_ended(self) -> None:
        """The app plays nothing any more."""
        self._set_playing(False)

    def _set_playing(self, playing: bool) -> None:
        self._check()
        self._protocol.playing = playing
        self._wake()

    async def _send(self, data: bytes, direction: tuple[str, str] | None, end_ms: float) -> None:
        async with self._sending:
            self._check()
            self._cutter.turn_to(direction)
            limit = self._protocol.limits.max_chunk_bytes
            for piece in self._cutter.cut(data, end_ms=end_ms, max_bytes=limit):
                await self._until(self._has_room)
                self._check()
                self._add(piece.data, piece.client_ms)
                # For the writer and reader, where an app sends without ever waiting.
                await asyncio.sleep(0)

    def _has_room(self) -> bool:
        return self._protocol.kept.size <= self._max_unacknowledged

    def _add(self, data: bytes, client_ms: int, *, is_final: bool = False) -> None:
        pair = self._cutter.direction
        self._protocol.kept.add(
            data,
            is_final=is_final,
            direction=common_pb2.LanguagePair(src=pair.src, tgt=pair.tgt) if pair else None,
            client_ms=client_ms,
        )
        self._wake()

    # ---- waiting ----

    def _wake(self) -> None:
        if self._link is not None:
            self._link.wake()

    async def _until(self, condition: Callable[[], bool]) -> None:
        """Returns when the condition holds or the session is over; raises where it was lost."""
        if self._link is None:
            raise RuntimeError("the session is not open: use `async with Session(...)`")
        await self._link.until(lambda: self._done or condition())
        if self._failure is not None:
            raise self._failure

    def _check(self) -> None:
        """Raises where nothing can be sent."""
        if self._link is None:
            raise RuntimeError("the session is not open: use `async with Session(...)`")
        if self._failure is not None:
            raise self._failure
        if self._protocol.closing:
            raise RuntimeError("the session is closed: nothing can be sent any more")
        if self._protocol.over:
            raise SessionLostError(
                "CLOSED", "the server has closed the session", results_seen=self._protocol.seen
            )
