"""Takes audio from the app, cuts it into chunks, and hands them to the protocol."""

import asyncio
import contextlib
import time

from lingua_scheduler.sdk._transport.log import log
from lingua_scheduler.sdk.audio import AudioFormat
from lingua_scheduler.sdk.session.chunks import Cutter
from lingua_scheduler.sdk.session.files import StrPath, wav_blocks
from lingua_scheduler.sdk.session.link import Connection
from lingua_scheduler.sdk.session.protocol.state import SessionState
from lingua_scheduler.sdk.session.sharing import Sharing
from lingua_scheduler.sdk.types import Pair
from lingua_scheduler.v1 import common_pb2

# How much of a file is read at a time if it is not sent at the pace of speech.
_BLOCK_MS = 1000


class Sender:
    """The sending half of an open session. `Session` documents what each method promises.

    Args:
        state: the session's facts; chunks go to `state.kept`.
        connection: is woken for every chunk.
        cutter: makes chunks.
        audio_format: the format of all audio.
        chunk_ms: the length of a chunk.
        share_ms: how long audio may wait to share a message; see `Sharing`.
        max_unacknowledged_bytes: sending waits while more than this is unacknowledged.
    """

    def __init__(
        self,
        *,
        state: SessionState,
        connection: Connection,
        cutter: Cutter,
        audio_format: AudioFormat,
        chunk_ms: int,
        share_ms: int,
        max_unacknowledged_bytes: int,
    ) -> None:
        self._state = state
        self._connection = connection
        self._cutter = cutter
        self._audio_format = audio_format
        self._chunk_ms = chunk_ms
        self._max_unacknowledged = max_unacknowledged_bytes
        self._sharing = Sharing(share_ms)
        self._direction: Pair | None = None
        # Sends chunks that wait for others which do not come.
        self._timer: asyncio.TimerHandle | None = None
        # Keeps the chunks of one call together, and calls in order.
        self._one_at_a_time = asyncio.Lock()

    async def send(self, data: bytes, direction: tuple[str, str] | None, end_ms: float) -> None:
        """Sends audio whose end was recorded at `end_ms`, in milliseconds since the epoch."""
        async with self._one_at_a_time:
            self._connection.check_writable()
            self._cutter.set_direction(direction)
            limit = self._state.limits.max_chunk_bytes
            for piece in self._cutter.cut(data, end_ms=end_ms, max_bytes=limit):
                await self._connection.until(self._has_room)
                self._connection.check_writable()
                self._add(piece.data, piece.client_ms)
                # Lets the writer and the reader run if the app never waits between calls.
                await asyncio.sleep(0)

    async def send_file(
        self, path: StrPath, *, direction: tuple[str, str] | None, pace: bool
    ) -> None:
        """Sends a WAV file, at the pace of speech or as fast as the server takes it."""
        loop = asyncio.get_running_loop()
        start, sent_ms = loop.time(), 0.0
        start_ms = self._cutter.stamp_after(time.time() * 1000)
        block_ms = self._chunk_ms if pace else _BLOCK_MS
        blocks = wav_blocks(path, expected=self._audio_format, ms=block_ms)
        async with contextlib.aclosing(blocks):
            async for block in blocks:
                sent_ms += self._audio_format.duration_ms(len(block))
                if pace:
                    await asyncio.sleep(start + sent_ms / 1000 - loop.time())
                await self.send(block, direction, start_ms + sent_ms)

    async def finish(self) -> None:
        """Ends the utterance."""
        async with self._one_at_a_time:
            self._connection.check_writable()
            if rest := self._cutter.take_rest():
                raise ValueError(f"data: the audio ends with {len(rest)} bytes of half a sample")
            self._cutter.check_finish()
            self._add(b"", self._cutter.stamp(time.time() * 1000), is_final=True)
        await asyncio.sleep(0)

    async def close(self) -> None:
        """Ends the session. Returns when all results have arrived."""
        async with self._one_at_a_time:
            if not (self._state.over or self._state.closing):
                self._connection.check_writable()
                if rest := self._cutter.take_rest():
                    log.warning("incomplete sample dropped", extra={"bytes": len(rest)})
                self._state.closing = True
                self._send_waiting()
        await self._connection.until(lambda: False)

    async def drained(self) -> None:
        """Returns when the server has acknowledged all audio."""
        await self._connection.until(lambda: len(self._state.kept) == 0)

    def set_playing(self, playing: bool) -> None:
        """Tells the server whether the app is playing speech."""
        self._connection.check_writable()
        self._state.playing = playing
        self._connection.wake()

    def _has_room(self) -> bool:
        return self._state.kept.size <= self._max_unacknowledged

    def _add(self, data: bytes, client_ms: int, *, is_final: bool = False) -> None:
        pair = self._cutter.direction
        if is_final or pair != self._direction:
            self._direction = pair
            self._sharing.end()
        waits = bool(data) and self._may_wait(data)
        self._state.kept.add(
            data,
            is_final=is_final,
            direction=common_pb2.LanguagePair(src=pair.src, tgt=pair.tgt) if pair else None,
            client_ms=client_ms,
            waits=waits,
        )
        if not waits:
            self._send_waiting()
        elif self._timer is None:
            longest_s = self._sharing.longest_ms(self._state.limits.pause_ms) / 1000
            self._timer = asyncio.get_running_loop().call_later(longest_s, self._send_waiting)

    def _may_wait(self, data: bytes) -> bool:
        limits = self._state.limits
        return self._sharing.waits(
            self._cutter.duration_ms(data), pause_ms=limits.pause_ms, max_chunks=limits.max_chunks
        )

    def _send_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._state.kept.release()
        self._connection.wake()
