"""The stream to one client: messages that wait to be written, and when to read more."""

import asyncio
import contextlib
from collections.abc import Callable

from lingua_scheduler.services.runtime.rpc.message_sizes import batch_bytes
from lingua_scheduler.services.runtime.rpc.outbox import SHARE_WITHIN_S, Outbox
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.services.session_gateway.live.client import Client
from lingua_scheduler.services.session_gateway.live.spans import SessionSpans
from lingua_scheduler.services.session_gateway.metrics import GatewayMetrics
from lingua_scheduler.v1 import session_pb2

# Bounds of what waits for a client that reads slowly. Partials are dropped first; if results do not
# fit either, the stream ends, and the results that the client has not seen are kept for its resume.
_MAX_EVENTS = 2000
_MAX_BYTES = 16 * 1024 * 1024
# How long a stream that ends may take to write the messages that wait.
_FLUSH_S = 2.0
# Events that may wait to share a message with a more urgent one.
_PATIENT = frozenset({"utterance", "audio_ack"})
# A finalized event waits for the acceptance that usually follows, but not so long that the app
# would show it noticeably late.
_FINALIZED_WITHIN_S = 0.1


class ConverseStream:
    """Writes messages to one client, and says when to read the client's messages.

    Args:
        settings: of the gateway.
        metrics: of the gateway.
        spans: of the session; None if it is not traced.
    """

    def __init__(
        self, *, settings: Settings, metrics: GatewayMetrics, spans: SessionSpans | None
    ) -> None:
        self._metrics = metrics
        self._spans = spans
        # Serialized messages. Concatenated protobuf messages merge: repeated fields append.
        self._outbox: Outbox[bytes] = Outbox(
            max_events=_MAX_EVENTS,
            max_bytes=_MAX_BYTES,
            max_take_bytes=batch_bytes(settings.max_message_bytes),
        )
        self._loop = asyncio.get_running_loop()
        # The client takes a gateway for frozen if it sends nothing for the whole of this time.
        self._send_every_ms = settings.peer_silence_ms / 2
        self._sent_ms = self._loop.time() * 1000
        # Set while messages are written: see `Client.beat`.
        self._beat: Callable[[], bool] = bool
        self.may_read = asyncio.Event()
        """Cleared while the client's messages must not be read."""
        self.may_read.set()
        self.aborted = asyncio.Event()
        """Set when the stream has to end at once, even if messages still wait."""

    # ---- reading ----

    async def until_may_read(self) -> None:
        """Returns when the client's messages may be read again."""
        while not self.may_read.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._send_every_ms / 1000):
                    await self.may_read.wait()
                    return
            self._send_nothing(self._loop.time() * 1000)

    # ---- writing ----

    async def write(self, client: Client) -> None:
        """Writes messages until the stream is closed."""
        self._beat = client.beat
        while messages := await self._outbox.take():
            await client.write(b"".join(messages))

    def send(self, message: session_pb2.ServerMessage) -> bool:
        """Queues a message. Returns False if it does not fit: the client does not read."""
        within_s = _FINALIZED_WITHIN_S
        partial_of: int | None = None
        for event in message.events:
            kind = event.WhichOneof("event")
            if kind == "result":
                # A receipt of a room has no timings: each language has its own.
                if not event.result.HasField("room"):
                    self._metrics.timed(event.result.timings)
                if self._spans is not None:
                    self._spans.delivered(event.result)
            elif kind == "missing":
                self._metrics.missing(event.missing.why.reason)
                if self._spans is not None:
                    self._spans.missing(event.missing)
            elif kind == "partial" and len(message.events) == 1:
                partial_of = event.partial.utterance_index
            if kind not in _PATIENT:
                within_s = 0.0
            elif kind != "utterance" or not event.utterance.HasField("finalized"):
                within_s = min(within_s, SHARE_WITHIN_S)
        self._sent_ms = self._loop.time() * 1000
        data = message.SerializeToString()
        droppable = partial_of is not None
        # A partial replaces the previous one of the same utterance.
        fits = self._outbox.put(data, len(data), droppable, replaces=partial_of, within_s=within_s)
        return fits or droppable or self._outbox.closed

    def keep_alive(self, now: float) -> None:
        """Sends an empty message if nothing else was sent for a while."""
        if now - self._sent_ms >= self._send_every_ms:
            self._send_nothing(now)

    def _send_nothing(self, now: float) -> None:
        self._sent_ms = now
        if not self._outbox and self._beat():
            return
        self._outbox.put(b"", 0, droppable=True, replaces="life")

    def close(self) -> None:
        """Accepts no more messages, and ends the stream once those that wait are written."""
        self.may_read.set()
        self._beat = bool
        if not self._outbox.closed:
            self._outbox.close()
            self._loop.call_later(_FLUSH_S, self.aborted.set)
