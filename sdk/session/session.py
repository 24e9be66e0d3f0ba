"""A session as app developers see it."""

import asyncio
import time
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self

from lingua_scheduler.sdk._transport.channels import Channels, parse_addresses
from lingua_scheduler.sdk._transport.tls import Tls
from lingua_scheduler.sdk._transport.tokens import Token, TokenSource
from lingua_scheduler.sdk.audio import AudioFormat
from lingua_scheduler.sdk.session.chunks import Cutter
from lingua_scheduler.sdk.session.events import Event, Limits, Outcome
from lingua_scheduler.sdk.session.files import StrPath
from lingua_scheduler.sdk.session.inbox import Inbox
from lingua_scheduler.sdk.session.link import Connection
from lingua_scheduler.sdk.session.options import (
    LEAST_UNACKNOWLEDGED_BYTES,
    PauseDetection,
    RoomSpeaker,
    directions_of,
    new_session,
)
from lingua_scheduler.sdk.session.protocol.machine import SessionProtocol
from lingua_scheduler.sdk.session.protocol.state import Counts, Unacknowledged
from lingua_scheduler.sdk.session.sender import Sender
from lingua_scheduler.sdk.session.sharing import SHARE_MS
from lingua_scheduler.sdk.validate import check_number

# About four minutes of speech at 16 kHz.
MAX_UNACKNOWLEDGED_BYTES = 8 * 1024 * 1024
# Short enough for live speech, long enough to keep the number of messages low.
CHUNK_MS = 100
# The latest time that the contract allows for a chunk.
_MAX_TIME_MS = 2**53

Bytes = bytes | bytearray | memoryview


class Session:
    """Streams speech to a gateway and receives translations. An async context manager.

        async with Session("127.0.0.1:7730", src="en", tgt="es") as session:
            await session.send_file("hello.wav")
            await session.finish()

    It reconnects and resumes by itself. Audio is kept until the server has acknowledged it, and
    each result is given once and in order, whatever happens to connections and gateways.

    Entering opens the session. Leaving the block closes it: by then everything that was sent is
    finalized and its results have arrived. Leaving it by an exception drops the connection at once.

    All methods belong to the event loop in which the session was entered.

    Args:
        addresses: of equivalent gateways: "host:port", "a:1,b:2" or a list of these.
        src: the spoken language, such as "en", if it never changes; requires `tgt`.
        tgt: the language to translate to.
        a: one language of a conversation, in which each `send` says who speaks; requires `b`.
        b: the other language.
        audio_format: of all audio that is sent; 16-bit PCM at 16 kHz by default.
        require_tts: whether speech is needed; otherwise text is enough.
        preferred_node_id: the node to try first.
        strict: use that node or none.
        partial_interval_ms: the least time between partial texts; 0: none are sent.
        features: options for nodes, such as a dialect or a voice.
        pause_detection: how the gateway detects pauses; VOICE_ACTIVITY for a microphone that never
            stops sending.
        tenant: the tenant of the session, if the deployment has tenants.
        room: speaks to a room instead: see `Room.speak`. Excludes src, tgt, a and b.
        tls: None for plain text.
        token: authenticates this app: a string, a file (pathlib.Path), or a function, async or
            blocking, that returns it. Files and functions are asked at every connection, so the
            session continues with the next token when one expires.
        metadata: key-value pairs that are sent with each connection.
        channels: shared with other sessions of this event loop; excludes `tls`.
        reconnect_seconds: how long to look for a gateway before giving up. By default 10 s for the
            first connection, and later as long as the server allows (`limits.resume_within_ms`).
        max_unacknowledged_bytes: `send` waits while more than this is unacknowledged; at least
            1 MiB.
        chunk_ms: the longest chunk of PCM, in milliseconds.
        share_ms: audio of this duration shares a message, so live speech needs fewer messages;
            0: every chunk is sent at once. In the middle of speech, chunks then wait for the next
            one; `finish`, a change of direction and what follows them are sent at once. By default
            300, and 0 with VOICE_ACTIVITY, where a wait would let the gateway hear a pause later.

    Attributes:
        audio_format: the format of all audio that is sent.

    Raises:
        ValueError: names the argument and what is allowed.
    """

    def __init__(
        self,
        addresses: str | Sequence[str],
        *,
        src: str | None = None,
        tgt: str | None = None,
        a: str | None = None,
        b: str | None = None,
        audio_format: AudioFormat | None = None,
        require_tts: bool = False,
        preferred_node_id: str = "",
        strict: bool = False,
        partial_interval_ms: int = 0,
        features: Mapping[str, str] | None = None,
        pause_detection: PauseDetection = PauseDetection.GAPS,
        tenant: str = "",
        room: RoomSpeaker | None = None,
        tls: Tls | None = None,
        token: Token | None = None,
        metadata: Sequence[tuple[str, str]] = (),
        channels: Channels | None = None,
        reconnect_seconds: float | None = None,
        max_unacknowledged_bytes: int = MAX_UNACKNOWLEDGED_BYTES,
        chunk_ms: int = CHUNK_MS,
        share_ms: int | None = None,
    ) -> None:
        if channels is not None and tls is not None:
            raise ValueError("tls: must be given to the shared channels instead")
        if reconnect_seconds is not None:
            check_number("reconnect_seconds", reconnect_seconds, 0, 86_400)
        check_number(
            "max_unacknowledged_bytes", max_unacknowledged_bytes, LEAST_UNACKNOWLEDGED_BYTES, 2**40
        )
        check_number("chunk_ms", chunk_ms, 1, 10_000)
        if share_ms is None:
            share_ms = 0 if pause_detection is PauseDetection.VOICE_ACTIVITY else SHARE_MS
        check_number("share_ms", share_ms, 0, 10_000)
        pairs = directions_of(src, tgt, a, b, room)
        self.audio_format = audio_format or AudioFormat()
        self._protocol = SessionProtocol(
            new=new_session(
                pairs,
                audio_format=self.audio_format,
                require_tts=require_tts,
                preferred_node_id=preferred_node_id,
                strict=strict,
                partial_interval_ms=partial_interval_ms,
                features=features or {},
                tenant=tenant,
                pause_detection=pause_detection,
                room=room,
            ),
            reconnect_seconds=reconnect_seconds,
        )
        self._state = self._protocol.state
        self._inbox = Inbox()
        self._addresses = parse_addresses(addresses)
        self._token = TokenSource(token)
        self._metadata = metadata
        self._channels = channels or Channels(tls=tls)
        self._owns_channels = channels is None
        self._directions = pairs
        self._chunk_ms = int(chunk_ms)
        self._share_ms = int(share_ms)
        self._max_unacknowledged = max_unacknowledged_bytes
        self._connection: Connection | None = None
        self._opened_sender: Sender | None = None

    # ---- opening and closing ----

    async def __aenter__(self) -> Self:
        """Opens the session.

        Raises:
            SessionRefusedError: the gateway refuses this session, and a retry cannot help.
            SessionUnavailableError: no gateway opened it in time.
        """
        if self._connection is not None:
            raise RuntimeError("a session is opened once; create another Session")
        self._connection = Connection(
            protocol=self._protocol,
            inbox=self._inbox,
            addresses=self._addresses,
            channels=self._channels,
            token=self._token,
            metadata=self._metadata,
        )
        self._opened_sender = Sender(
            state=self._state,
            connection=self._connection,
            cutter=Cutter(
                audio_format=self.audio_format,
                directions=self._directions,
                chunk_ms=self._chunk_ms,
            ),
            audio_format=self.audio_format,
            chunk_ms=self._chunk_ms,
            share_ms=self._share_ms,
            max_unacknowledged_bytes=self._max_unacknowledged,
        )
        try:
            await self._connection.until(lambda: bool(self._state.session_id))
        except BaseException:
            await self._leave(self._connection)
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Closes the session, or drops it if the block was left by an exception."""
        try:
            if kind is None:
                await self.close()
        finally:
            assert self._connection is not None
            await self._leave(self._connection)

    async def close(self) -> None:
        """Ends the session. Returns when all results have arrived; they can still be read then.

        Raises:
            SessionLostError: the session was lost before its end.
        """
        await self._sender.close()

    async def _leave(self, connection: Connection) -> None:
        """Leaves no task and no connection behind."""
        await connection.abort()
        if self._owns_channels:
            await self._channels.close()

    # ---- sending ----

    async def send(
        self,
        data: Bytes,
        *,
        direction: tuple[str, str] | None = None,
        recorded_at: float | None = None,
    ) -> None:
        """Sends audio that was recorded just now. Also works while there is no connection.

        Returns when the SDK has taken over the audio. It waits while more than
        `max_unacknowledged_bytes` are unacknowledged.

        Args:
            data: PCM of any length; a sample that is split over two calls is joined. Or one Opus
                packet.
            direction: who speaks, as (src, tgt). Required in a conversation.
            recorded_at: when the end of the data was recorded, in seconds since the epoch; now by
                default. A gap that is longer than a pause ends an utterance.

        Raises:
            ValueError: names the argument and what is wrong with it. Nothing was sent.
            SessionLostError: the session was lost.
        """
        end = time.time() if recorded_at is None else recorded_at
        if not 0 <= end * 1000 <= _MAX_TIME_MS:
            raise ValueError(
                f"recorded_at: {recorded_at!r} must be seconds since the epoch, at most 2^53 ms"
            )
        await self._sender.send(bytes(data), direction, end * 1000)

    async def send_all(
        self,
        source: AsyncIterable[Bytes] | Iterable[Bytes],
        *,
        direction: tuple[str, str] | None = None,
    ) -> None:
        """Sends everything that an iterable yields, as it comes. Raises as `send` does.

        A synchronous iterable may block, as a microphone does: it runs in a thread.
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
            pace: True: at the pace of speech. False: as fast as the server takes it; timestamps
                still follow the audio, so no pauses appear.

        Raises:
            ValueError: the file is not a WAV file, or has another format. Also as `send`.
            OSError: the file cannot be read.
        """
        await self._sender.send_file(path, direction=direction, pace=pace)

    async def finish(self) -> None:
        """Ends the utterance: the speaker has finished.

        Audio that a microphone still delivers within the server's hangover (about 200 ms of audio)
        joins the utterance. An app that sends on at once, for example from files, should await
        `drained` in between.

        Raises:
            ValueError: the audio ends within a sample, which is now dropped; or nothing was sent
                in a conversation, so nobody can have finished.
            SessionLostError: the session was lost.
        """
        await self._sender.finish()

    async def playback_started(self) -> None:
        """The app is playing speech: until `playback_ended`, silence is not a pause."""
        self._sender.set_playing(True)

    async def playback_ended(self) -> None:
        """The app has stopped playing speech."""
        self._sender.set_playing(False)

    async def drained(self) -> None:
        """Returns when the server has acknowledged all audio, so that the SDK keeps none.

        The server acknowledges an utterance once it is cut and accepted, usually some time after
        `finish`.

        Raises:
            SessionLostError: the session was lost.
        """
        await self._sender.drained()

    @property
    def _sender(self) -> Sender:
        if self._opened_sender is None:
            raise RuntimeError("the session is not open: use `async with Session(...)`")
        return self._opened_sender

    # ---- receiving ----

    def events(self) -> AsyncIterator[Event]:
        """Everything that happens, in order, from the opening to the end of the session.

        An unread partial text is replaced by the next one of its utterance. Nothing else is
        dropped, unless `results()` is read and this is not: then only the newest events are kept.

        Raises:
            SessionLostError: after the last event of a session that was lost.
        """
        self._inbox.events.is_read = True
        return self._inbox.events.read()

    def results(self) -> AsyncIterator[Outcome]:
        """Results and missing utterances only: each index once, in order, to the session's end.

        A session that speaks to a room gets a `Receipt` for each utterance in place of a result.

        They are kept until they are read, even if `events()`, which also has them, is read too. A
        second iterator continues where the first stopped.

        Raises:
            SessionLostError: after the last result of a session that was lost.
            RuntimeError: at the call, if `events()` was read alone for so long that results had to
                be dropped here. Call `results()` earlier.
        """
        queue = self._inbox.results
        if queue.dropped and not queue.is_read:
            raise RuntimeError(
                f"results() was called too late: the first {queue.dropped} went to events() only"
            )
        queue.is_read = True
        return queue.read()

    # ---- properties ----

    @property
    def session_id(self) -> str:
        """The session's id for operators' tools; empty until it is open."""
        return self._state.session_id

    @property
    def limits(self) -> Limits:
        """What the server allows, once the session is open."""
        return self._state.limits

    @property
    def traceparent(self) -> str:
        """The W3C trace context of the session, for the app's own spans; or ""."""
        return self._state.traceparent

    @property
    def connected(self) -> bool:
        """Whether the session is open at a gateway now."""
        return self._protocol.opened

    @property
    def unacknowledged(self) -> Unacknowledged:
        """The audio that no server has acknowledged."""
        return self._state.unacknowledged

    @property
    def counts(self) -> Counts:
        """Totals of the session so far."""
        return self._state.counts
