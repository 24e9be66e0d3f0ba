"""Converts messages of the session's contract to events. No I/O, no clock."""

from collections.abc import Sequence

from lingua_scheduler.sdk._transport.wire import audio_format_from, reason_from, stage_from
from lingua_scheduler.sdk.audio import AudioFormat
from lingua_scheduler.sdk.results import Timing
from lingua_scheduler.sdk.session.events import (
    Accepted,
    Finalized,
    LanguageMissing,
    Limits,
    Missing,
    PartialText,
    Problem,
    Receipt,
    Result,
    ResultKind,
    ResultTimings,
    Retrying,
    Texts,
)
from lingua_scheduler.statuses import reason_name
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, session_pb2

# The limit of a server that does not announce one.
_CHUNK_BYTES = 64 * 1024

# A newer server may send kinds that this version does not know.
_KINDS = {int(kind): kind for kind in ResultKind}


def limits_from(message: session_pb2.SessionLimits) -> Limits:
    """Returns what the server allows."""
    return Limits(
        max_chunk_bytes=message.max_chunk_bytes or _CHUNK_BYTES,
        pause_ms=message.pause_ms,
        max_duration_ms=message.max_duration_ms,
        max_length_bytes=message.max_length_bytes,
        result_deadline_ms=message.result_deadline_ms,
        resume_within_ms=message.resume_within_ms,
        # A server that does not announce it takes each chunk in a message of its own.
        max_chunks=message.max_chunks or 1,
    )


def result_from(message: session_pb2.Result) -> Result:
    """Returns a result; a `Receipt` in a room."""
    if message.HasField("room"):
        return _receipt(message)
    return Result(
        index=message.utterance_index,
        src=message.direction.src,
        tgt=message.direction.tgt,
        kind=kind_from(message.kind),
        texts=texts_from(message.texts),
        speech=message.speech,
        speech_format=_format(message),
        joined=tuple(message.joined_utterances),
        lost=tuple(message.lost_utterances),
        job_id=message.job_id,
        node_id=message.node_id,
        attempts=message.attempts,
        turn_broken=message.turn_broken,
        timings=_timings(message.timings),
    )


def _receipt(message: session_pb2.Result) -> Receipt:
    room = message.room
    return Receipt(
        index=message.utterance_index,
        src=message.direction.src,
        tgt="",
        kind=ResultKind.UNSPECIFIED,
        timings=_timings(message.timings),
        room_index=room.room_index,
        delivered=tuple(room.delivered),
        missing=tuple(
            LanguageMissing(
                language=each.language,
                reason=reason_name(each.why.reason),
                message=each.why.message,
            )
            for each in room.missing
        ),
    )


def missing_from(message: session_pb2.Missing) -> Missing:
    """Returns a missing utterance."""
    return Missing(
        index=message.utterance_index,
        src=message.direction.src,
        tgt=message.direction.tgt,
        reason=reason_name(message.why.reason),
        message=message.why.message,
        lost=tuple(message.lost_utterances),
    )


def partial_from(message: session_pb2.Partial) -> PartialText:
    """Returns a partial text."""
    return PartialText(
        index=message.utterance_index,
        src=message.direction.src,
        tgt=message.direction.tgt,
        texts=texts_from(message.texts),
    )


def progress_from(message: session_pb2.UtteranceEvent) -> Finalized | Accepted | Retrying | None:
    """Returns the progress of an utterance; None if this version does not know the event."""
    index, src, tgt = message.utterance_index, message.direction.src, message.direction.tgt
    match message.WhichOneof("event"):
        case "finalized":
            return Finalized(
                index=index,
                src=src,
                tgt=tgt,
                reason=reason_from(message.finalized.reason),
                audio_ms=message.finalized.audio_ms,
            )
        case "accepted":
            return Accepted(
                index=index,
                src=src,
                tgt=tgt,
                job_id=message.accepted.job_id,
                node_id=message.accepted.node_id,
                attempt=message.accepted.attempt,
            )
        case "retrying":
            return Retrying(
                index=index,
                src=src,
                tgt=tgt,
                attempt=message.retrying.attempt,
                reason=reason_name(message.retrying.why.reason),
                message=message.retrying.why.message,
            )
    return None


def problem_from(error: common_pb2.Error) -> Problem:
    """Returns an error after which the session continues."""
    return Problem(
        reason=reason_name(error.reason),
        message=error.message,
        fields=fields_of(error),
        details=dict(error.metadata),
    )


def fields_of(error: common_pb2.Error) -> tuple[tuple[str, str], ...]:
    """Returns the invalid fields of an error, and what is wrong with each."""
    return tuple((each.field, each.description) for each in error.field_violations)


def texts_from(message: dispatcher_pb2.Texts) -> Texts:
    """Returns the texts."""
    return Texts(source=message.source, repaired=message.repaired, translated=message.translated)


def _format(message: session_pb2.Result) -> AudioFormat | None:
    return known_format(message.speech_format) if message.HasField("speech_format") else None


def known_format(message: common_pb2.AudioFormat) -> AudioFormat | None:
    """Returns the format of audio; None if this version does not know it."""
    try:
        return audio_format_from(message)
    except ValueError:
        return None


def kind_from(number: int) -> ResultKind:
    """Returns the kind of a result; UNSPECIFIED if this version does not know it."""
    return _KINDS.get(number, ResultKind.UNSPECIFIED)


def _timings(message: session_pb2.ResultTimings) -> ResultTimings:
    return ResultTimings(
        audio_ms=message.audio_ms,
        hangover_ms=message.hangover_ms,
        dispatch_ms=message.dispatch_ms,
        node_ms=message.node_ms,
        deliver_ms=message.deliver_ms,
        stages=_stages(message.stages),
    )


def _stages(timings: Sequence[dispatcher_pb2.StageTiming]) -> tuple[Timing, ...]:
    return tuple(
        Timing(stage=stage, started_ms=each.started_ms, took_ms=each.took_ms)
        for each in timings
        if (stage := stage_from(each.stage)) is not None
    )
