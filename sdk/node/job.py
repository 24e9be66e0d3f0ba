"""A job as its handler sees it."""

import threading
import time
from collections.abc import Callable, Mapping

from opentelemetry.trace import SpanContext

from lingua_scheduler.sdk._transport.wire import audio_format_from, reason_from, stages_from
from lingua_scheduler.sdk.audio import AudioFormat, Encoding, opus_packets
from lingua_scheduler.sdk.node.tracing import span_context
from lingua_scheduler.sdk.types import Pair, Reason, Stage
from lingua_scheduler.v1 import dispatcher_pb2


class CancelFlag:
    """Says whether the job was cancelled. Like threading.Event, and usable as a boolean."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def is_set(self) -> bool:
        """Whether the job was cancelled."""
        return self._event.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Blocks until the job is cancelled or the time is up. Returns whether it was cancelled."""
        return self._event.wait(timeout)

    def set(self) -> None:
        """Cancels the job. Only the SDK calls this."""
        self._event.set()

    def __bool__(self) -> bool:
        return self.is_set()


class Job:
    """One attempt to translate one utterance. Handlers only read it.

    Attributes:
        job_id: the same for all attempts.
        attempt: counts from 1.
        tenant: empty; nodes are not told.
        session_id: identifies the turn: the same for jobs whose audio belongs together, and
            different for the next turn of the conversation.
        utterance_index: the index of the utterance in the session.
        job_type: "translate" unless the deployment has other types.
        pair: source and target language.
        audio: the utterance; for Opus see `packets`. Empty if `is_flush`.
        audio_format: the format of `audio`.
        padding_ms: silence to assume after the audio.
        reason: why the utterance was cut.
        features: options such as a dialect or a voice.
        require_tts: whether speech is required, and not only text.
        required_stages: stages that the job must have.
        partial_interval: seconds between partial results; 0: none are wanted. The SDK limits the
            rate, so a handler may yield as many as it likes.
        begins_turn: audio that the node still holds for the session in this direction belongs to
            a turn that continued elsewhere, and must not be joined. HeldAudio handles this.
        held: earlier utterances whose audio this node holds, and which the result must join.
            HeldAudio handles this.
        included: earlier utterances at the beginning of `audio`, because the node that held them
            is not available. The result must list them as joined. HeldAudio handles this.
        is_flush: nothing more was said; the job ends a turn whose audio the node holds. The answer
            is the result for the held audio, or NoSpeech if there is none.
        traceparent: W3C trace context of the attempt, or "". If the process traces, the handler's
            own spans are part of it.
        cancelled: set when the result is no longer wanted. Async handlers are cancelled as tasks
            are; blocking ones should check it now and then.
    """

    __slots__ = (
        "_deadline",
        "_hold",
        "attempt",
        "audio",
        "audio_format",
        "begins_turn",
        "cancelled",
        "features",
        "held",
        "included",
        "is_flush",
        "job_id",
        "job_type",
        "padding_ms",
        "pair",
        "partial_interval",
        "reason",
        "require_tts",
        "required_stages",
        "session_id",
        "tenant",
        "traceparent",
        "utterance_index",
    )

    def __init__(
        self,
        *,
        job_id: str,
        attempt: int = 1,
        tenant: str = "",
        session_id: str = "",
        utterance_index: int = 0,
        job_type: str = "translate",
        pair: Pair,
        audio: bytes = b"",
        audio_format: AudioFormat | None = None,
        padding_ms: int = 0,
        reason: Reason = Reason.UNSPECIFIED,
        features: Mapping[str, str] | None = None,
        require_tts: bool = False,
        required_stages: tuple[Stage, ...] = (),
        partial_interval: float = 0.0,
        traceparent: str = "",
        begins_turn: bool = False,
        held: tuple[int, ...] = (),
        included: tuple[int, ...] = (),
        is_flush: bool = False,
        deadline: float | None = None,
        cancelled: CancelFlag | None = None,
        hold: Callable[[], None] | None = None,
    ) -> None:
        self.job_id = job_id
        self.attempt = attempt
        self.tenant = tenant
        self.session_id = session_id
        self.utterance_index = utterance_index
        self.job_type = job_type
        self.pair = pair
        self.audio = audio
        self.audio_format = audio_format or AudioFormat()
        self.padding_ms = padding_ms
        self.reason = reason
        self.features: Mapping[str, str] = features or {}
        self.require_tts = require_tts
        self.required_stages = required_stages
        self.partial_interval = partial_interval
        self.traceparent = traceparent
        self.begins_turn = begins_turn
        self.held = held
        self.included = included
        self.is_flush = is_flush
        self.cancelled = CancelFlag() if cancelled is None else cancelled
        self._deadline = deadline
        self._hold = hold

    @property
    def packets(self) -> list[bytes]:
        """The packets of Opus audio, in order.

        Raises:
            ValueError: the audio is not Opus, or its packets are malformed.
        """
        if self.audio_format.encoding is not Encoding.OPUS:
            raise ValueError("packets: only Opus audio has packets; this audio is PCM")
        return opus_packets(self.audio)

    @property
    def is_captions(self) -> bool:
        """Whether both languages are the same: recognise and repair, do not translate.

        Rooms have such jobs, for listeners who read what is said in its own language. The text goes
        into `translated` as well.
        """
        return self.pair.src.lower() == self.pair.tgt.lower()

    def time_left(self) -> float:
        """Returns the seconds until the deadline; infinity if there is none."""
        if self._deadline is None:
            return float("inf")
        return max(0.0, self._deadline - time.monotonic())

    def hold(self) -> None:
        """Announces at once that the node keeps this audio for the session's next job.

        For handlers that know this before they are done. If the handler then ends without a
        result, the result is Held.
        """
        if self._hold is not None:
            self._hold()

    @property
    def span_context(self) -> SpanContext:
        """The attempt's OpenTelemetry span context; invalid if nothing is traced."""
        return span_context(self.traceparent)

    def __repr__(self) -> str:
        return (
            f"<Job {self.job_id}/{self.attempt} {self.pair.src}->{self.pair.tgt}"
            f" {self.session_id}#{self.utterance_index} {len(self.audio)} bytes>"
        )


def job_from(
    assign: dispatcher_pb2.JobAssign,
    *,
    cancelled: CancelFlag | None = None,
    hold: Callable[[], None] | None = None,
) -> Job:
    """Returns the job of a valid assignment (see `bad_job`) that was received now."""
    spec = assign.job
    return Job(
        job_id=assign.attempt.job_id,
        attempt=assign.attempt.attempt,
        tenant=spec.tenant,
        session_id=spec.session_id,
        utterance_index=spec.utterance_index,
        job_type=spec.job_type or "translate",
        pair=Pair(spec.pair.src, spec.pair.tgt),
        audio=spec.audio,
        audio_format=audio_format_from(spec.audio_format)
        if spec.HasField("audio_format")
        else None,
        padding_ms=spec.padding_ms,
        reason=reason_from(spec.reason),
        features=dict(spec.features),
        require_tts=spec.require_tts,
        required_stages=stages_from(spec.required_stages),
        partial_interval=spec.partial_interval_ms / 1000,
        traceparent=spec.traceparent,
        begins_turn=assign.begins_turn,
        held=tuple(spec.held_utterances),
        included=tuple(spec.included_utterances),
        is_flush=spec.is_flush,
        deadline=time.monotonic() + assign.time_left_ms / 1000 if assign.time_left_ms else None,
        cancelled=cancelled,
        hold=hold,
    )


def _audio_format(spec: dispatcher_pb2.JobSpec) -> AudioFormat | None:
    return audio_format_from(spec.audio_format) if spec.HasField("audio_format") else None
