"""Checks a session's arguments, by the rules of the contract. Errors are ValueErrors."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from lingua_scheduler.sdk._transport.wire import audio_format_message
from lingua_scheduler.sdk.audio import AudioFormat, Encoding
from lingua_scheduler.sdk.types import Pair
from lingua_scheduler.sdk.validate import check_id, check_language, check_number, check_text
from lingua_scheduler.v1 import common_pb2, session_pb2

MAX_FEATURES = 32
# The sample rates in which the gateway can detect voice.
VOICE_RATES = (8000, 16_000, 32_000, 48_000)
MAX_FEATURE_CHARACTERS = 256
MAX_PARTIAL_INTERVAL_MS = 60_000
# Less might not hold one utterance, and then nothing would ever be acknowledged.
LEAST_UNACKNOWLEDGED_BYTES = 1024 * 1024
MAX_SPEAKER_NAME = 64


class PauseDetection(IntEnum):
    """How the gateway detects the pauses that end utterances."""

    # No audio arrives for `Limits.pause_ms`.
    GAPS = session_pb2.PAUSE_DETECTION_GAPS
    # Nobody speaks for `Limits.pause_ms` of audio; for microphones that never stop sending.
    VOICE_ACTIVITY = session_pb2.PAUSE_DETECTION_VOICE_ACTIVITY


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomSpeaker:
    """A speaker in a room, for a session that speaks to it. `Room.speak` makes it.

    Args:
        room_id: the room.
        join_token: allows it to speak there.
        language: what it speaks.
        name: shown to listeners.

    Raises:
        ValueError: names the argument and what is allowed.
    """

    room_id: str
    join_token: str = field(repr=False)
    language: str
    name: str = ""

    def __post_init__(self) -> None:
        check_id("room_id", self.room_id)
        check_language("language", self.language)
        check_text("name", self.name, MAX_SPEAKER_NAME)

    def message(self) -> session_pb2.RoomSpeaker:
        """Returns the speaker as a message."""
        return session_pb2.RoomSpeaker(
            room_id=self.room_id,
            join_token=self.join_token,
            language=self.language,
            name=self.name,
        )


def directions_of(
    src: str | None, tgt: str | None, a: str | None, b: str | None, room: RoomSpeaker | None
) -> tuple[Pair, ...]:
    """Returns the directions of a session; to a room, one without a target."""
    if room is None:
        return directions(src, tgt, a, b)
    if any((src, tgt, a, b)):
        raise ValueError("room: excludes src, tgt, a and b; its listeners choose the targets")
    return (Pair(room.language, ""),)


def directions(src: str | None, tgt: str | None, a: str | None, b: str | None) -> tuple[Pair, ...]:
    """Returns the fixed direction, or both directions of a conversation."""
    fixed, open_ = (src, tgt), (a, b)
    if any(fixed) == any(open_):
        raise ValueError(
            "src: pass src and tgt for one direction, or a and b for a conversation in both"
        )
    if any(fixed):
        return (Pair(check_language("src", src), check_language("tgt", tgt)),)
    one, other = check_language("a", a), check_language("b", b)
    if one.lower() == other.lower():
        raise ValueError(f"b: {other!r} must differ from a")
    return Pair(one, other), Pair(other, one)


def new_session(
    pairs: tuple[Pair, ...],
    *,
    audio_format: AudioFormat,
    require_tts: bool,
    preferred_node_id: str,
    strict: bool,
    partial_interval_ms: int,
    features: Mapping[str, str],
    tenant: str,
    pause_detection: PauseDetection,
    room: RoomSpeaker | None = None,
) -> session_pb2.NewSession:
    """Returns the request for a session as a message."""
    if pause_detection is PauseDetection.VOICE_ACTIVITY:
        _check_audible(audio_format)
    if preferred_node_id:
        check_id("preferred_node_id", preferred_node_id)
    elif strict:
        raise ValueError("strict: requires a preferred_node_id")
    if tenant:
        check_id("tenant", tenant)
    check_number("partial_interval_ms", partial_interval_ms, 0, MAX_PARTIAL_INTERVAL_MS)
    # The contract has a oneof for these.
    languages: dict[str, Any]
    if room is not None:
        languages = {"room": room.message()}
    elif len(pairs) == 1:
        languages = {"direction": common_pb2.LanguagePair(src=pairs[0].src, tgt=pairs[0].tgt)}
    else:
        languages = {"conversation": session_pb2.LanguageSet(a=pairs[0].src, b=pairs[0].tgt)}
    return session_pb2.NewSession(
        **languages,
        audio_format=audio_format_message(audio_format),
        options=session_pb2.SessionOptions(
            require_tts=require_tts,
            preferred_node_id=preferred_node_id,
            strict=strict,
            partial_interval_ms=int(partial_interval_ms),
            features=_features(features),
            pause_detection=session_pb2.PauseDetection.ValueType(pause_detection),
        ),
        tenant=tenant,
    )


def _check_audible(audio: AudioFormat) -> None:
    is_pcm = audio.encoding is Encoding.PCM_S16LE
    if not is_pcm or audio.channels != 1 or audio.sample_rate_hz not in VOICE_RATES:
        rates = ", ".join(map(str, VOICE_RATES))
        raise ValueError(
            f"audio_format: voice activity detection needs PCM of one channel at {rates} Hz"
        )


def _features(features: Mapping[str, str]) -> dict[str, str]:
    if len(features) > MAX_FEATURES:
        raise ValueError(f"features: has {len(features)}; at most {MAX_FEATURES} are allowed")
    for key, value in features.items():
        for each in (key, value):
            if not isinstance(each, str) or len(each) > MAX_FEATURE_CHARACTERS:
                raise ValueError(
                    f"features[{str(key)[:40]!r}]: key and value must be text of at most"
                    f" {MAX_FEATURE_CHARACTERS} characters"
                )
    return dict(features)
