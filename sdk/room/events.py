"""What an app gets to know of a room. All are immutable.

A listener gets each utterance of its language exactly once, in order: as `Said` or as `NotSaid`.
All other events are for display only.
"""

from dataclasses import dataclass, field
from enum import StrEnum

from lingua_scheduler.sdk.audio import AudioFormat
from lingua_scheduler.sdk.session.events import Problem, Reconnecting, ResultKind, Texts


class RoomRole(StrEnum):
    """What the holder of a join token may do."""

    LISTENER = "listener"
    # May speak and listen.
    SPEAKER = "speaker"


class SpeakPolicy(StrEnum):
    """Who may speak in a room."""

    # Holders of a speaker's token, and the host.
    INVITED = "invited"
    # Holders of any token of the room.
    ANYONE = "anyone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """What a listener receives.

    Attributes:
        language: of captions and speech.
        captions: whether it receives texts.
        speech: whether it receives translated speech; for speakers of the same language, their
            own voice.
        original_audio: whether it receives the audio of the speaker, whatever its language.
    """

    language: str
    captions: bool = True
    speech: bool = False
    original_audio: bool = False


# ---- the state of a room ----


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeakerInfo:
    """A speaker of a room.

    Attributes:
        session_id: of the session that speaks.
        name: for display; may be empty.
        language: that is spoken.
        joined_ms: when it came, in ms since the epoch.
    """

    session_id: str
    name: str
    language: str
    joined_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageInfo:
    """A language of a room that somebody listens to.

    Attributes:
        language: the language.
        listeners: how many listen to it.
        speech_listeners: how many of them want speech.
        waiting: utterances that were cut and have no outcome in this language yet.
        oldest_waiting_ms: how old the first of them is.
    """

    language: str
    listeners: int
    speech_listeners: int
    waiting: int
    oldest_waiting_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomInfo:
    """A room as it was when the server answered.

    Attributes:
        room_id: the id.
        tenant: to whom it belongs.
        name: for people.
        allowed_languages: that members may speak and listen to; empty: any.
        speak: who may speak.
        max_members: speakers and listeners together.
        max_speakers: at the same time.
        max_languages: that are listened to at the same time.
        created_ms: when it was created, in ms since the epoch.
        next_index: the room index of the next utterance.
        listeners: their number.
        speakers: in the order in which they came.
        languages: that are listened to, most listeners first.
        gateway_instances: gateways with members of this room; only for operators.
    """

    room_id: str
    tenant: str
    name: str
    allowed_languages: tuple[str, ...]
    speak: SpeakPolicy
    max_members: int
    max_speakers: int
    max_languages: int
    created_ms: int
    next_index: int
    listeners: int
    speakers: tuple[SpeakerInfo, ...]
    languages: tuple[LanguageInfo, ...]
    gateway_instances: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A member of a room.

    Attributes:
        name: for display; may be empty.
        role: whether it speaks or listens.
        language: what a speaker speaks, or a listener listens to.
        listening: what a listener receives; None for a speaker.
        joined_ms: when it came, in ms since the epoch.
        gateway_instance: only for operators.
    """

    name: str
    role: RoomRole
    language: str
    listening: Listening | None
    joined_ms: int
    gateway_instance: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomStatus:
    """Who is in a room now. Sent at most once a second.

    Attributes:
        listeners: their number.
        languages: that are listened to, most listeners first.
        speakers: in the order in which they came.
    """

    listeners: int
    languages: tuple[LanguageInfo, ...]
    speakers: tuple[SpeakerInfo, ...]


# ---- what a listener hears ----


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """An utterance in the listener's language.

    Attributes:
        room_index: counts the utterances of all speakers of the room. Those that were not wanted in
            the listener's language are skipped.
        speaker: the speaker's name; may be empty.
        session_id: the speaker's session.
        language: of the texts and the speech.
        spoken_language: of the speaker. If it is `language`, nothing was translated.
        kind: only TRANSLATED has texts and audio.
        texts: the texts; empty if the listener wants no captions.
        speech: translated speech, if the listener wants it and a node made it. In the speaker's own
            language there is none: their voice is `original_audio`.
        speech_format: the format of `speech`; None if there is none, or if it is unknown.
        original_audio: the speaker's audio, if the listener wants it, or if it wants speech and
            the speaker speaks its language.
        original_format: the format of `original_audio`.
        joined: earlier room indexes that were HELD and are part of this.
        lost: earlier room indexes whose held audio was lost: no result contains what was said.
        turn_broken: the sentence began at another node, which did not become available in time.
        replayed: whether it was said before the listener came. It has no audio then.
        cut_at_ms: when the utterance was cut, in ms since the epoch.
        audio_ms: how long the utterance is.
        published_ms: when the result was there for all listeners, in ms since the epoch.
    """

    room_index: int
    speaker: str
    session_id: str
    language: str
    spoken_language: str
    kind: ResultKind
    texts: Texts = field(default_factory=Texts)
    speech: bytes = field(default=b"", repr=False)
    speech_format: AudioFormat | None = None
    original_audio: bytes = field(default=b"", repr=False)
    original_format: AudioFormat | None = None
    joined: tuple[int, ...] = ()
    lost: tuple[int, ...] = ()
    turn_broken: bool = False
    replayed: bool = False
    cut_at_ms: int = 0
    audio_ms: int = 0
    published_ms: int = 0

    @property
    def text(self) -> str:
        """The caption: the translation, or what was recognised in the listener's own language."""
        if self.texts.translated:
            return self.texts.translated
        is_own = self.language.lower() == self.spoken_language.lower()
        return (self.texts.repaired or self.texts.source) if is_own else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotSaid:
    """There will be no result for one or more utterances in the listener's language.

    Attributes:
        room_index: of the utterance, or of the first one.
        until_index: one more than the last one's room index.
        language: in which they are missing.
        reason: for tools: an ErrorReason of the contract without its prefix, such as JOB_TIMEOUT;
            or NOT_KEPT: they were said too long ago; OUT_OF_ORDER: the server skipped them and did
            not have them when it was asked again; AWAY: the connection was lost for longer than
            the room counts a listener, and nobody else listened to the language; LISTENING_CHANGED:
            the connection broke while the language was being changed; NOT_READ: the app had too
            much to read.
        message: one sentence for people.
        speaker: as in Said; empty if there are several.
        session_id: as in Said.
        spoken_language: as in Said.
        lost: as in Said.
        replayed: as in Said.
    """

    room_index: int
    until_index: int
    language: str
    reason: str
    message: str = ""
    speaker: str = ""
    session_id: str = ""
    spoken_language: str = ""
    lost: tuple[int, ...] = ()
    replayed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ListeningChanged:
    """The listener receives something else from now on.

    Attributes:
        listening: what it receives.
        position: the first room index that comes in this way.
    """

    listening: Listening
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejoined:
    """The listener is in the room again after `Reconnecting`. It continues where it was.

    Attributes:
        away: how many seconds there was no connection.
        position: the room index from which it continues.
    """

    away: float
    position: int


Heard = Said | NotSaid
RoomEvent = Heard | ListeningChanged | Problem | Reconnecting | Rejoined
