"""A session: what an app developer sees of this SDK."""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from types import TracebackType
from typing import NamedTuple, Self

from lingua_scheduler.sdk._transport.channels import Channels, parse_addresses
from lingua_scheduler.sdk._transport.tls import Tls
from lingua_scheduler.sdk._transport.tokens import Token, TokenSource
from lingua_scheduler.sdk.audio import AudioFormat
from lingua_scheduler.sdk.session.chunks import Cutter
from lingua_scheduler.sdk.session.events import Event, Limits, Outcome
from lingua_scheduler.sdk.session.inbox import Inbox
from lingua_scheduler.sdk.session.link import SessionLink
from lingua_scheduler.sdk.session.options import (
    LEAST_UNACKNOWLEDGED_BYTES,
    PauseDetection,
    directions,
    new_session,
)
from lingua_scheduler.sdk.session.protocol import SessionProtocol
from lingua_scheduler.sdk.session.sending import SessionSending
from lingua_scheduler.sdk.validate import check_number

# About four minutes of speech at 16 kHz.
MAX_UNACKNOWLEDGED_BYTES = 8 * 1024 * 1024
# Short enough for a live talk, long enough for few messages.
CHUNK_MS = 100
_log = logging.getLogger("lingua_scheduler.sdk")


class Unacknowledged(NamedTuple):
    """Audio that the SDK holds, since no server has said that it is safe."""

    chunks: int
    bytes: int


class Counts(NamedTuple):
    """What a session has been through.

    Attributes:
        chunks: that the app has sent.
        utterances: that the server has spoken of, also where the events have not been read yet.
            After `drained` these are all that was said; where the connection broke since, some may
            be known by their results only.
        results: that came.
        missing: utterances that have no result.
        repeated: results that came once more after a reconnection, and were dropped.
        resumes: reconnections.
    """

    chunks: int
    utterances: int
    results: int
    missing: int
    repeated: int
    resumes: int


class Session(SessionSending):
    """Streams speech to a gateway, and gives translations back. An async context manager.

        async with Session("127.0.0.1:7730", src="en", tgt="es") as session:
            await session.send_file("hello.wav")
            await session.finish()

    It reconnects and resumes by itself. Audio is held until the server has said that it is safe,
    and each result is given once and in order, whatever happens to connections and gateways.

    Entering opens the session. Leaving the block closes it: what was sent is finalized and its
    results have come when the block is left. Leaving by an exception drops the connection at once.

    All methods belong to the event loop in which it was entered.

    Args:
        addresses: of gateways, all alike: "host:port", "a:1,b:2" or a list of such.
        src: the language that is spoken, such as "en", where that never changes; with `tgt`.
        tgt: the language that is wanted.
        a: a language of a conversation, where each `send` says who speaks; with `b`.
        b: the other one.
        audio_format: of all audio that is sent; PCM of 16 bits at 16 kHz by default.
        require_tts: whether speech is wanted; otherwise text is enough.
        preferred_node_id: the node that is tried first.
        strict: that node or none.
        partial_interval_ms: over 0: partial texts are wanted, at most one in this time.
        features: options for nodes, such as a dialect or a voice.
        pause_detection: how the gateway finds pauses; VOICE_ACTIVITY for a microphone that never
            stops sending.
        tenant: whose session it is, where the deployment has tenants.
        tls: None for plain text.
        token: who this app is: a text, a file (pathlib.Path) that has it, or a function, async or
            blocking, that gives it. File and function are asked at every connection, so the
            session goes on with the next token where one expires.
        metadata: pairs that are sent with each connection.
        channels: shared with other sessions of this event loop; excludes `tls`.
        reconnect_seconds: how long to look for a gateway before it gives up. By default 10 s at
            first, and what the server allows (`limits.resume_within_ms`) later.
        max_unacknowledged_bytes: `send` waits while more than this is held; at least 1 MiB.
        chunk_ms: PCM is cut in chunks of so many milliseconds at most.

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
        tls: Tls | None = None,
        token: Token | None = None,
        metadata: Sequence[tuple[str, str]] = (),
        channels: Channels | None = None,
        reconnect_seconds: float | None = None,
        max_unacknowledged_bytes: int = MAX_UNACKNOWLEDGED_BYTES,
        chunk_ms: int = CHUNK_MS,
    ) -> None:
        if channels is not None and tls is not None:
            raise ValueError("tls: must be given to the channels that are shared")
        if reconnect_seconds is not None:
            check_number("reconnect_seconds", reconnect_seconds, 0, 86_400)
        check_number(
            "max_unacknowledged_bytes", max_unacknowledged_bytes, LEAST_UNACKNOWLEDGED_BYTES, 2**40
        )
        check_number("chunk_ms", chunk_ms, 1, 10_000)
        pairs = directions(src, tgt, a, b)
        audio_format = audio_format or AudioFormat()
        super().__init__(
            protocol=SessionProtocol(
                new=new_session(
                    pairs,
                    audio_format=audio_format,
                    require_tts=require_tts,
                    preferred_node_id=preferred_node_id,
                    strict=strict,
                    partial_interval_ms=partial_interval_ms,
                    features=features or {},
                    tenant=tenant,
                    pause_detection=pause_detection,
                ),
                reconnect_seconds=reconnect_seconds,
            ),
            cutter=Cutter(audio_format=audio_format, directions=pairs, chunk_ms=int(chunk_ms)),
            audio_format=audio_format,
            chunk_ms=int(chunk_ms),
            max_unacknowledged_bytes=max_unacknowledged_bytes,
        )
        self._addresses = parse_addresses(addresses)
        self._tls = tls
        self._token = TokenSource(token)
        self._metadata = metadata
        self._shared_channels = channels
        self._inbox = Inbox()
        self._channels: Channels | None = None
        self._task: asyncio.Task[None] | None = None

    # ---- opening and closing ----

    async def __aenter__(self) -> Self:
        """Opens the session.

        Raises:
            SessionRefusedError: a gateway will never have this session as it is.
            SessionUnavailableError: no gateway could be reached in time.
        """
        if self._task is not None:
            raise RuntimeError("a session is opened once; make another Session")
        self._channels = self._shared_channels or Channels(tls=self._tls)
        self._link = SessionLink(
            protocol=self._protocol,
            addresses=self._addresses,
            channels=self._channels,
            token=self._token,
            metadata=self._metadata,
            give=self._inbox.put,
            over=self._inbox.end,
            rng=random.Random(),
        )
        self._task = asyncio.create_task(self._link.run())
        self._task.add_done_callback(self._on_done)
        try:
            await self._until(lambda: bool(self._protocol.session_id))
        except BaseException:
            await self._leave()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Closes the session, or drops it where the block was left by an exception."""
        try:
            if kind is None:
                await self.close()
        finally:
            await self._leave()

    async def close(self) -> None:
        """Ends the session; returns when all results have come. They can still be read then.

        Raises:
            SessionLostError: it could not be brought to its end.
        """
        async with self._sending:
            if not (self._protocol.over or self._protocol.closing):
                self._check()
                if rest := self._cutter.take_rest():
                    _log.warning("the last %d bytes are no whole sample: left out", len(rest))
                self._protocol.close()
                self._wake()
        await self._until(lambda: False)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            self._failure = self._protocol.lost("ABORTED", "the session was left before its end")
        elif (error := task.exception()) is not None:
            # What is no Exception (an interrupt) ends the loop itself.
            self._failure = error if isinstance(error, Exception) else RuntimeError(str(error))
        self._done = True
        self._inbox.end(self._failure)
        self._wake()

    async def _leave(self) -> None:
        """Whatever has happened: no task and no connection is left behind."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        if self._channels is not None and self._shared_channels is None:
            await self._channels.close()

    # ---- hearing ----

    def events(self) -> AsyncIterator[Event]:
        """All that happens, in order, since the session was opened; ends with the session.

        A partial text that was not read is replaced by the next one of its utterance. Nothing else
        is left out, unless `results()` is read and this is not: then the newest are kept only.

        Raises:
            SessionLostError: after the last event of a session that was lost.
        """
        self._inbox.events.is_read = True
        return self._inbox.events.read()

    def results(self) -> AsyncIterator[Outcome]:
        """Only results and missing ones: each index once, in order; ends with the session.

        They wait here until they are read, also beside `events()`, which has them as well. A second
        iterator goes on where the first stopped.

        Raises:
            SessionLostError: after the last result of a session that was lost.
            RuntimeError: at the call: it comes too late, `events()` was read alone for so long that
                results were given up here. Call this first.
        """
        lane = self._inbox.results
        if lane.dropped and not lane.is_read:
            raise RuntimeError(
                f"results() comes too late: the first {lane.dropped} went to events() only"
            )
        lane.is_read = True
        return lane.read()

    async def drained(self) -> None:
        """Returns when the server has said that all audio is safe, and nothing is held any more.

        It says so when an utterance is cut and accepted, so usually some time after `finish`.

        Raises:
            SessionLostError: the session cannot go on.
        """
        await self._until(lambda: len(self._protocol.kept) == 0)

    # ---- looking ----

    @property
    def session_id(self) -> str:
        """Of the session, once it is open; for the operator's tools."""
        return self._protocol.session_id

    @property
    def limits(self) -> Limits:
        """What the server allows, once the session is open."""
        return self._protocol.limits

    @property
    def traceparent(self) -> str:
        """W3C trace context of the session, for the app's own spans; or ""."""
        return self._protocol.traceparent

    @property
    def connected(self) -> bool:
        """Whether a gateway has the session now."""
        return self._protocol.opened

    @property
    def unacknowledged(self) -> Unacknowledged:
        """The audio that is held."""
        return Unacknowledged(len(self._protocol.kept), self._protocol.kept.size)

    @property
    def counts(self) -> Counts:
        """What the session has been through."""
        protocol = self._protocol
        return Counts(
            chunks=protocol.kept.end,
            utterances=protocol.awaited,
            results=protocol.results,
            missing=protocol.missing,
            repeated=protocol.repeated,
            resumes=protocol.resumes,
        )
