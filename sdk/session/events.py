"""The events of a session that an app receives. All are immutable.

Each utterance has exactly one `Result` or `Missing`, in order; in a room, one `Receipt` or
`Missing`. All other events are for display only.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from lingua_scheduler.sdk.audio import AudioFormat
from lingua_scheduler.sdk.results import Timing
from lingua_scheduler.sdk.types import Reason
from lingua_scheduler.v1 import dispatcher_pb2


class ResultKind(IntEnum):
    """The kind of an utterance's result."""

    # A kind of a newer server that this version does not know.
    UNSPECIFIED = dispatcher_pb2.JobResult.KIND_UNSPECIFIED
    TRANSLATED = dispatcher_pb2.JobResult.KIND_TRANSLATED
    # The sentence was unfinished: a later result has it, and names this index in `joined`.
    HELD = dispatcher_pb2.JobResult.KIND_HELD
    # The audio contains no speech.
    NO_SPEECH = dispatcher_pb2.JobResult.KIND_NO_SPEECH


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """The recognised, repaired and translated text."""

    source: str = ""
    repaired: str = ""
    translated: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultTimings:
    """Where the time went: consecutive durations from the first chunk on, in milliseconds.

    Attributes:
        audio_ms: the length of the utterance.
        hangover_ms: from its end to the cut.
        dispatch_ms: from the cut until a node had accepted it.
        node_ms: until the node's result.
        deliver_ms: until it was sent to this client, including the wait for earlier indexes.
        stages: the stages at the node.
    """

    audio_ms: int = 0
    hangover_ms: int = 0
    dispatch_ms: int = 0
    node_ms: int = 0
    deliver_ms: int = 0
    stages: tuple[Timing, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of an utterance.

    Attributes:
        index: of the utterance. Indexes count up from 0 without gaps.
        src: the spoken language.
        tgt: the language of the translation.
        kind: only TRANSLATED has texts and speech.
        texts: the texts.
        speech: audio of the translation; empty if none was asked for.
        speech_format: the format of `speech`; None if there is none, or if it is unknown.
        joined: earlier indexes that were HELD and are part of this result.
        lost: earlier indexes whose held audio was lost: no result contains what was said there.
        job_id: for operators' tools.
        node_id: the node that did it.
        attempts: how many attempts it took.
        timings: where the time went.
        turn_broken: the sentence began at another node, which did not become available in time.
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
class LanguageMissing:
    """A language in which the room has no result for an utterance.

    Attributes:
        language: the language that somebody listens to.
        reason: for tools: an ErrorReason of the contract without its prefix, such as JOB_TIMEOUT.
        message: one sentence for people.
    """

    language: str
    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt(Result):
    """What became of an utterance of a speaker in a room. It has no texts: listeners get those.

    A `Result` whose kind is UNSPECIFIED and whose `tgt` is empty. It comes when all languages that
    somebody listened to have an outcome.

    Attributes:
        room_index: counts the utterances of all speakers of the room.
        delivered: the languages in which listeners have their result.
        missing: the languages in which there is none.
    """

    room_index: int
    delivered: tuple[str, ...] = ()
    missing: tuple[LanguageMissing, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """There will be no result for this utterance. Later utterances are not affected.

    Attributes:
        reason: for tools: an ErrorReason of the contract without its prefix, such as JOB_TIMEOUT.
        message: one sentence for people.
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
    """The text of an utterance so far. Each replaces the one before."""

    index: int
    src: str
    tgt: str
    texts: Texts


@dataclass(frozen=True, slots=True, kw_only=True)
class Finalized:
    """An utterance was cut."""

    index: int
    src: str
    tgt: str
    reason: Reason
    audio_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """A node has accepted an utterance."""

    index: int
    src: str
    tgt: str
    job_id: str
    node_id: str
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrying:
    """An attempt failed, and another one follows."""

    index: int
    src: str
    tgt: str
    attempt: int
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """The server reports an error. The session continues.

    Attributes:
        reason: an ErrorReason of the contract without its prefix; or OUT_OF_ORDER: the server
            skipped something, and the SDK reconnects to get it.
        message: one sentence for people.
        fields: the path of each invalid field, and what is wrong with it.
        details: further facts for tools.
    """

    reason: str
    message: str
    fields: tuple[tuple[str, str], ...] = ()
    details: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconnecting:
    """The connection was lost, and the SDK is reconnecting. The app may continue to send."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """The session continues after `Reconnecting`.

    Attributes:
        away: how many seconds there was no connection.
        chunks_again: how many unacknowledged chunks are sent again.
    """

    away: float
    chunks_again: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the server allows, and how it cuts utterances; durations in milliseconds.

    Attributes:
        max_chunk_bytes: the largest chunk; the SDK cuts accordingly.
        pause_ms: how long without audio, or without voice (PauseDetection), ends an utterance.
        max_duration_ms: the longest utterance.
        max_length_bytes: the largest utterance.
        result_deadline_ms: after this, an utterance without a result is missing.
        resume_within_ms: how long a session can be resumed after its connection was lost.
        max_chunks: the most chunks in one message; the SDK sends no more.
    """

    max_chunk_bytes: int = 64 * 1024
    pause_ms: int = 0
    max_duration_ms: int = 0
    max_length_bytes: int = 0
    result_deadline_ms: int = 0
    resume_within_ms: int = 0
    max_chunks: int = 1


Outcome = Result | Missing
Event = Outcome | PartialText | Finalized | Accepted | Retrying | Problem | Reconnecting | Resumed
