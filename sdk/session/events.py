"""What an app hears of its session. All of them are facts, and none can be changed.

`Result` and `Missing` are what counts: one of them for each utterance, in order. All others are for
the app's display, and nothing depends on them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from lingua_scheduler.sdk.audio import AudioFormat
from lingua_scheduler.sdk.results import Timing
from lingua_scheduler.sdk.types import Reason
from lingua_scheduler.v1 import dispatcher_pb2


class ResultKind(IntEnum):
    """What became of an utterance."""

    # A newer server's, unknown to this SDK.
    UNSPECIFIED = dispatcher_pb2.JobResult.KIND_UNSPECIFIED
    TRANSLATED = dispatcher_pb2.JobResult.KIND_TRANSLATED
    # The sentence was unfinished: a later result has it, and names this index in `joined`.
    HELD = dispatcher_pb2.JobResult.KIND_HELD
    # Nothing was said.
    NO_SPEECH = dispatcher_pb2.JobResult.KIND_NO_SPEECH


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """As recognised, as repaired, as translated."""

    source: str = ""
    repaired: str = ""
    translated: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultTimings:
    """Where the time went: durations in milliseconds, one after the other from the first chunk.

    Attributes:
        audio_ms: how long the utterance is.
        hangover_ms: from its end to the cut.
        dispatch_ms: from the cut until a node had it.
        node_ms: until the node's result.
        deliver_ms: until it was sent to this client; the wait for earlier indexes is part of it.
        stages: what the node did in its time.
    """

    audio_ms: int = 0
    hangover_ms: int = 0
    dispatch_ms: int = 0
    node_ms: int = 0
    deliver_ms: int = 0
    stages: tuple[Timing, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """An utterance, translated.

    Attributes:
        index: of the utterance. Indexes count up from 0 without a hole.
        src: the language that was spoken.
        tgt: the language that it was translated to.
        kind: only TRANSLATED has texts and speech.
        texts: what was said.
        speech: audio of the translation; empty where none was asked for.
        speech_format: what `speech` is; None where there is none, or of a kind unknown here.
        joined: earlier indexes that were HELD and are part of this one.
        lost: earlier indexes whose audio a node held for this one, and which was lost: what was
            said there comes in no result.
        job_id: for the operator's tools.
        node_id: who did it.
        attempts: that it took.
        timings: where the time went.
        turn_broken: the sentence began at another node, which could not be waited for.
    """

    index: int
    src: str
    tgt: str
    kind: ResultKind
    texts: Texts = field(default_factory=Texts)
    speech: bytes = field(default=b"", repr=False)
    speech_format: AudioFormat | None = None
    joined: tuple[int, ...] = ()
    lost: tuple[int, ...] = ()
    job_id: str = ""
    node_id: str = ""
    attempts: int = 0
    timings: ResultTimings = field(default_factory=ResultTimings)
    turn_broken: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """There will be no result for this utterance. Those after it go on.

    Attributes:
        reason: for tools, as in the contract's ErrorReason without its prefix: JOB_TIMEOUT.
        message: one sentence for a person.
        lost: as in Result.
    """

    index: int
    src: str
    tgt: str
    reason: str
    message: str = ""
    lost: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialText:
    """What is known so far of an utterance. Each replaces the one before."""

    index: int
    src: str
    tgt: str
    texts: Texts


@dataclass(frozen=True, slots=True, kw_only=True)
class Finalized:
    """An utterance was cut, and why."""

    index: int
    src: str
    tgt: str
    reason: Reason
    audio_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """A node has an utterance and works on it."""

    index: int
    src: str
    tgt: str
    job_id: str
    node_id: str
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrying:
    """An attempt failed, and another follows."""

    index: int
    src: str
    tgt: str
    attempt: int
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """The server reports an error. The session goes on.

    Attributes:
        reason: as in the contract's ErrorReason without its prefix; OUT_OF_ORDER where the server
            left out a result, which this SDK asks for again.
        message: one sentence for a person.
        fields: pairs of a bad field's path and what is wrong with it.
        details: facts for tools.
    """

    reason: str
    message: str
    fields: tuple[tuple[str, str], ...] = ()
    details: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconnecting:
    """The connection is gone, and the SDK looks for another. The app may go on sending."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """The session goes on after `Reconnecting`.

    Attributes:
        away: for how many seconds there was no connection.
        chunks_again: that were not acknowledged, and are sent again.
    """

    away: float
    chunks_again: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the server allows, and how it cuts; durations in milliseconds.

    Attributes:
        max_chunk_bytes: the SDK cuts by it.
        pause_ms: so long without audio, or without voice (PauseDetection), and an utterance ends.
        max_duration_ms: the longest utterance.
        max_length_bytes: the largest.
        result_deadline_ms: an utterance without a result is missing after this.
        resume_within_ms: how long a broken connection may be resumed.
    """

    max_chunk_bytes: int = 64 * 1024
    pause_ms: int = 0
    max_duration_ms: int = 0
    max_length_bytes: int = 0
    result_deadline_ms: int = 0
    resume_within_ms: int = 0


Outcome = Result | Missing
Event = Outcome | PartialText | Finalized | Accepted | Retrying | Problem | Reconnecting | Resumed
