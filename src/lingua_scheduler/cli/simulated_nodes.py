"""Simulated nodes: any number in one process, over real streams, with the SDK's Node.

They do not recognise speech, but measure the audio: `describe` gives the text of a result, so that
the sender can check that the audio arrived complete and was joined in order.
"""

import array
import asyncio
import contextlib
import random
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from lingua_scheduler.sdk import (
    AudioFormat,
    Channels,
    Encoding,
    Held,
    HeldAudio,
    Job,
    JobError,
    Node,
    NoSpeech,
    Reason,
    Tls,
    Token,
    Translated,
    Turn,
)
from lingua_scheduler.sdk.node.protocol.machine import NodeProtocol
from lingua_scheduler.sdk.node.protocol.wire import Ref, ref_of
from lingua_scheduler.v1 import dispatcher_pb2

# New streams per second, so that a thousand nodes do not connect at once.
CONNECTS_PER_S = 500
# Audio is held only if more of the same turn may follow.
_HOLDABLE = (Reason.TIMEOUT, Reason.INTERRUPTED, Reason.MAX_DURATION, Reason.MAX_LENGTH)


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """What simulated nodes do with jobs. Rates are from 0 to 1 and independent.

    Attributes:
        slots: slots of each node.
        langs: languages that each node recognises, repairs and speaks.
        latency_ms: average time of a job.
        latency_jitter_ms: maximum deviation from it.
        fail_rate: share of jobs that fail.
        reject_rate: share of assignments that are rejected as FULL.
        silence_rate: share of jobs that are acknowledged but never answered.
        no_ack_rate: share of assignments that are not acknowledged.
        hold_rate: share of jobs whose audio is held, if more may follow.
        speech_bytes: size of a result's speech, if speech is requested.
    """

    slots: int = 2
    langs: Sequence[str] = ("en", "zh")
    latency_ms: float = 200.0
    latency_jitter_ms: float = 0.0
    fail_rate: float = 0.0
    reject_rate: float = 0.0
    silence_rate: float = 0.0
    no_ack_rate: float = 0.0
    hold_rate: float = 0.0
    speech_bytes: int = 0


def describe(audio: bytes, audio_format: AudioFormat) -> str:
    """The text of a simulated node for this audio, such as "1200 ms, peak 8000"."""
    if audio_format.encoding is not Encoding.PCM_S16LE:
        return f"{len(audio)} bytes"
    samples = array.array("h", audio[: len(audio) // 2 * 2])
    if sys.byteorder == "big":
        samples.byteswap()
    peak = max(max(samples), -min(samples)) if samples else 0
    return f"{audio_format.duration_ms(len(audio)):.0f} ms, peak {peak}"


class SimulatedNodes:
    """A fleet. Make it in the event loop that serves it.

    Args:
        count: how many nodes.
        addresses: of dispatchers.
        behaviour: what they do.
        prefix: nodes are named PREFIX-0, PREFIX-1, and so on.
        seed: makes what they draw repeatable; None for a new one each time.
        token: of a node by its id, for dispatchers that ask for one.
        tls: None for plain text.
    """

    def __init__(
        self,
        *,
        count: int,
        addresses: str | Sequence[str],
        behaviour: Behaviour,
        prefix: str = "sim",
        seed: int | None = None,
        token: Callable[[str], Token | None] = lambda _: None,
        tls: Tls | None = None,
    ) -> None:
        # What became of jobs: done, held, failed, silent, rejected, unacknowledged, cancelled.
        self.outcomes: Counter[str] = Counter()
        self._addresses = addresses
        self._channels = Channels(tls=tls)
        self._nodes = [
            _SimulatedNode(
                node_id=f"{prefix}-{at}",
                behaviour=behaviour,
                rng=random.Random(None if seed is None else f"{seed}/{at}"),
                outcomes=self.outcomes,
                channels=self._channels,
                token=token(f"{prefix}-{at}"),
            )
            for at in range(count)
        ]

    @property
    def connected(self) -> int:
        """Nodes that are connected to a dispatcher."""
        return sum(node.connected for node in self._nodes)

    @property
    def running(self) -> int:
        """Jobs in progress."""
        return sum(node.running for node in self._nodes)

    async def serve(self) -> None:
        """Serve until `stop`. Raises NodeRefusedError if a dispatcher refuses them."""
        try:
            async with asyncio.TaskGroup() as group:
                for at, node in enumerate(self._nodes):
                    group.create_task(self._serve_one(node, at / CONNECTS_PER_S))
        except* Exception as errors:
            # All nodes are refused for the same reason.
            raise errors.exceptions[0] from None
        finally:
            await self._channels.close()

    async def stop(self) -> None:
        """Drain all nodes; then `serve` returns."""
        await asyncio.gather(*(node.stop() for node in self._nodes))

    async def _serve_one(self, node: "_SimulatedNode", delay: float) -> None:
        if not await node.told_to_stop(delay):
            await node.serve(self._addresses)


class _SimulatedNode(Node):
    def __init__(
        self,
        *,
        node_id: str,
        behaviour: Behaviour,
        rng: random.Random,
        outcomes: Counter[str],
        channels: Channels,
        token: Token | None,
    ) -> None:
        super().__init__(
            node_id=node_id,
            asr=behaviour.langs,
            semantic=behaviour.langs,
            tts=behaviour.langs,
            slots=behaviour.slots,
            drain_seconds=5.0,
            software="lingua sim-nodes",
            token=token,
            channels=channels,
        )
        self._behaviour = behaviour
        self._rng = rng
        self._outcomes = outcomes
        self._held = HeldAudio()
        self._stopping = asyncio.Event()
        self.load = lambda: (0.0, 0.0)
        self.handler(self._translate)

    async def stop(self) -> None:
        self._stopping.set()
        await super().stop()

    async def told_to_stop(self, within: float) -> bool:
        """Wait up to `within` seconds; returns whether `stop` was called."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), within)
        return self._stopping.is_set()

    def make_protocol(self, hello: dispatcher_pb2.Hello) -> NodeProtocol:
        return _FaultyProtocol(hello, self._behaviour, self._rng, self._outcomes)

    async def _translate(self, job: Job) -> AsyncIterator[Translated | Held | NoSpeech]:
        try:
            with self._held.turn(job) as turn:
                yield await self._work(job, turn)
        except asyncio.CancelledError:
            self._outcomes["cancelled"] += 1
            raise

    async def _work(self, job: Job, turn: Turn) -> Translated | Held | NoSpeech:
        drawn, behaviour = self._rng.random, self._behaviour
        if drawn() < behaviour.silence_rate:
            self._outcomes["silent"] += 1
            await asyncio.Event().wait()
        jitter = self._rng.uniform(-1, 1) * behaviour.latency_jitter_ms
        await asyncio.sleep(max(0.0, behaviour.latency_ms + jitter) / 1000)
        if drawn() < behaviour.fail_rate:
            self._outcomes["failed"] += 1
            raise JobError("SIMULATED", "this job was chosen to fail")
        if job.reason in _HOLDABLE and drawn() < behaviour.hold_rate:
            self._outcomes["held"] += 1
            turn.keep()
            return Held()
        self._outcomes["done"] += 1
        if not turn.audio:
            return NoSpeech(joined=turn.joined)
        heard = describe(turn.audio, job.audio_format)
        return Translated(
            source=heard,
            repaired=heard,
            translated=heard if job.is_captions else f"[{job.pair.src}->{job.pair.tgt}] {heard}",
            speech=_speech(turn.audio, behaviour.speech_bytes) if job.require_tts else b"",
            speech_format=job.audio_format,
            joined=turn.joined,
        )


def _speech(audio: bytes, size: int) -> bytes:
    """The audio, repeated or cut to `size` bytes."""
    return (audio * (size // len(audio) + 1))[:size] if audio else bytes(size)


class _FaultyProtocol(NodeProtocol):
    """Loses and rejects assignments, and never gives up a job."""

    def __init__(
        self,
        hello: dispatcher_pb2.Hello,
        behaviour: Behaviour,
        rng: random.Random,
        outcomes: Counter[str],
    ) -> None:
        super().__init__(hello=hello, rng=rng)
        self._behaviour = behaviour
        self._outcomes = outcomes

    def on_assign(self, now: float, assign: dispatcher_pb2.JobAssign) -> None:
        if self._rng.random() < self._behaviour.no_ack_rate:
            self._outcomes["unacknowledged"] += 1
        elif self._rng.random() < self._behaviour.reject_rate:
            self._outcomes["rejected"] += 1
            cause = dispatcher_pb2.JobReject.CAUSE_FULL
            self.reject(ref_of(assign.attempt), cause, "this job was chosen to be rejected")
        else:
            super().on_assign(now, assign)

    def on_overrun(self, ref: Ref) -> None:
        # A silent node does not report a time-out either.
        pass
