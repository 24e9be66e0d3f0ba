"""Converts between a node's own types and the events of the contract. No I/O, no clock."""

from collections.abc import Sequence

from lingua_scheduler.sdk._transport.wire import audio_format_from, audio_format_message
from lingua_scheduler.sdk.results import Held, NoSpeech, Partial, Result, Timing, Translated
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2
from lingua_scheduler.v1.dispatcher_pb2 import NodeEvent

# The length at which details for people are cut; the dispatcher cuts there as well.
MAX_DETAIL = 200

Ref = tuple[str, int]

_KINDS: dict[type[Result], dispatcher_pb2.JobResult.Kind.ValueType] = {
    Translated: dispatcher_pb2.JobResult.KIND_TRANSLATED,
    Held: dispatcher_pb2.JobResult.KIND_HELD,
    NoSpeech: dispatcher_pb2.JobResult.KIND_NO_SPEECH,
}


def ref_of(attempt: common_pb2.AttemptRef) -> Ref:
    """Returns an attempt's reference as a key."""
    return attempt.job_id, attempt.attempt


def attempt_of(ref: Ref) -> common_pb2.AttemptRef:
    """Returns the message for a key; the inverse of `ref_of`."""
    return common_pb2.AttemptRef(job_id=ref[0], attempt=ref[1])


def bad_job(assign: dispatcher_pb2.JobAssign) -> str:
    """Returns why an assignment is invalid, or ""."""
    job = assign.job
    if not assign.attempt.job_id or assign.attempt.attempt < 1:
        return "attempt: must have a job_id and count from 1"
    if not assign.HasField("job"):
        return "job: is missing"
    if not (job.pair.src and job.pair.tgt):
        return "job.pair: must have src and tgt"
    try:
        if job.HasField("audio_format") or job.audio:
            audio_format_from(job.audio_format)
    except ValueError as error:
        return f"job.audio_format: {error}"
    return ""


def ack_event(ref: Ref) -> NodeEvent:
    """Returns the event that accepts an assignment."""
    return NodeEvent(job_ack=dispatcher_pb2.JobAck(attempt=attempt_of(ref)))


def reject_event(
    ref: Ref, cause: dispatcher_pb2.JobReject.Cause.ValueType, detail: str
) -> NodeEvent:
    """Returns the event that rejects an assignment."""
    reject = dispatcher_pb2.JobReject(
        attempt=attempt_of(ref), cause=cause, detail=detail[:MAX_DETAIL]
    )
    return NodeEvent(job_reject=reject)


def texts_of(texts: Partial | Translated) -> dispatcher_pb2.Texts:
    """Returns the three texts as a message."""
    return dispatcher_pb2.Texts(
        source=safe_text(texts.source),
        repaired=safe_text(texts.repaired),
        translated=safe_text(texts.translated),
    )


def result_event(ref: Ref, result: Result) -> NodeEvent:
    """Returns the event that carries a result."""
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
            message.speech_format.CopyFrom(audio_format_message(result.speech_format))
    return NodeEvent(job_result=message)


def failed_event(ref: Ref, cause: str, detail: str, *, worth_retry: bool) -> NodeEvent:
    """Returns the event that carries a failure."""
    return NodeEvent(
        job_failed=dispatcher_pb2.JobFailed(
            attempt=attempt_of(ref),
            cause=cause,
            detail=safe_text(detail)[:MAX_DETAIL],
            worth_retry=worth_retry,
        )
    )


def safe_text(text: str) -> str:
    """Returns the text without lone surrogates, which protobuf refuses."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _timings(timings: Sequence[Timing]) -> list[dispatcher_pb2.StageTiming]:
    return [
        dispatcher_pb2.StageTiming(
            stage=common_pb2.StageKind.ValueType(timing.stage),
            started_ms=timing.started_ms,
            took_ms=timing.took_ms,
        )
        for timing in timings
    ]
