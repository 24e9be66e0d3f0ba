"""Between the messages of the contract and the SDK's own types."""

import time
from collections.abc import Callable, Sequence

from lingua_scheduler.sdk.audio import AudioFormat, Encoding
from lingua_scheduler.sdk.node.job import CancelFlag, Job, Pair, Reason, Stage
from lingua_scheduler.sdk.results import Held, NoSpeech, Partial, Result, Timing, Translated
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2

# Of a detail for people; the dispatcher cuts there as well.
MAX_DETAIL = 200

Ref = tuple[str, int]


def ref_of(attempt: common_pb2.AttemptRef) -> Ref:
    """An attempt as a key."""
    return attempt.job_id, attempt.attempt


def attempt_of(ref: Ref) -> common_pb2.AttemptRef:
    """The opposite of `ref_of`."""
    return common_pb2.AttemptRef(job_id=ref[0], attempt=ref[1])


def bad_job(assign: dispatcher_pb2.JobAssign) -> str:
    """Why an assignment cannot be understood, or ""."""
    job = assign.job
    if not assign.attempt.job_id or assign.attempt.attempt < 1:
        return "attempt: must have a job_id and count from 1"
    if not assign.HasField("job"):
        return "job: is missing"
    if not (job.pair.src and job.pair.tgt):
        return "job.pair: must have src and tgt"
    try:
        if job.HasField("audio_format") or job.audio:
            audio_format(job.audio_format)
    except ValueError as error:
        return f"job.audio_format: {error}"
    return ""


def audio_format(message: common_pb2.AudioFormat) -> AudioFormat:
    """Raises ValueError where the format is none that this SDK knows."""
    try:
        encoding = Encoding(message.encoding)
    except ValueError:
        raise ValueError(f"encoding: {message.encoding} is not known to this node") from None
    return AudioFormat(encoding, message.sample_rate_hz, message.channels)


def job_from(
    assign: dispatcher_pb2.JobAssign,
    *,
    cancelled: CancelFlag | None = None,
    hold: Callable[[], None] | None = None,
) -> Job:
    """The job of an assignment that is not `bad_job`, received now."""
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
        audio_format=audio_format(spec.audio_format) if spec.HasField("audio_format") else None,
        padding_ms=spec.padding_ms,
        # A newer dispatcher may know reasons and stages that this SDK does not.
        reason=_REASONS.get(spec.reason, Reason.UNSPECIFIED),
        features=dict(spec.features),
        require_tts=spec.require_tts,
        required_stages=tuple(_STAGES[kind] for kind in spec.required_stages if kind in _STAGES),
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


def texts_of(texts: Partial | Translated) -> dispatcher_pb2.Texts:
    """The three texts."""
    return dispatcher_pb2.Texts(
        source=safe_text(texts.source),
        repaired=safe_text(texts.repaired),
        translated=safe_text(texts.translated),
    )


def result_event(ref: Ref, result: Result) -> dispatcher_pb2.NodeEvent:
    """A result as the event that carries it."""
    message = dispatcher_pb2.JobResult(
        attempt=attempt_of(ref), kind=_KINDS[type(result)], timings=_timings(result.timings)
    )
    if isinstance(result, Translated | NoSpeech):
        message.joined_utterances.extend(result.joined)
        message.held_audio_bytes = result.held_bytes
    if isinstance(result, Translated):
        message.texts.CopyFrom(texts_of(result))
        message.speech = result.speech
        if result.speech and result.speech_format is not None:
            message.speech_format.encoding = common_pb2.AudioEncoding.ValueType(
                result.speech_format.encoding
            )
            message.speech_format.sample_rate_hz = result.speech_format.sample_rate_hz
            message.speech_format.channels = result.speech_format.channels
    return dispatcher_pb2.NodeEvent(job_result=message)


def failed_event(
    ref: Ref, cause: str, detail: str, *, worth_retry: bool
) -> dispatcher_pb2.NodeEvent:
    """A failure as the event that carries it."""
    return dispatcher_pb2.NodeEvent(
        job_failed=dispatcher_pb2.JobFailed(
            attempt=attempt_of(ref),
            cause=cause,
            detail=safe_text(detail)[:MAX_DETAIL],
            worth_retry=worth_retry,
        )
    )


def safe_text(text: str) -> str:
    """The text without lone surrogates, which protobuf refuses."""
    return text.encode("utf-8", "replace").decode("utf-8")


_REASONS = {int(reason): reason for reason in Reason}
_STAGES = {int(stage): stage for stage in Stage}
_KINDS: dict[type[Result], dispatcher_pb2.JobResult.Kind.ValueType] = {
    Translated: dispatcher_pb2.JobResult.KIND_TRANSLATED,
    Held: dispatcher_pb2.JobResult.KIND_HELD,
    NoSpeech: dispatcher_pb2.JobResult.KIND_NO_SPEECH,
}


def _timings(timings: Sequence[Timing]) -> list[dispatcher_pb2.StageTiming]:
    return [
        dispatcher_pb2.StageTiming(
            stage=common_pb2.StageKind.ValueType(timing.stage),
            started_ms=timing.started_ms,
            took_ms=timing.took_ms,
        )
        for timing in timings
    ]
