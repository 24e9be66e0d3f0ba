"""The results that a handler yields or returns."""

from collections.abc import Sequence
from dataclasses import dataclass

from lingua_scheduler.sdk.audio import AudioFormat
from lingua_scheduler.sdk.types import Stage

# Limits of the contract. A message has 4 MiB, and the texts need room as well.
MAX_SPEECH_BYTES = 3 * 1024 * 1024
MAX_TEXT_BYTES = 64 * 1024
MAX_JOINED = 1000
MAX_TIMINGS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Partial:
    """A partial result. Each replaces the one before.

    Raises:
        ValueError: a text has more than 64 KiB in UTF-8.
    """

    source: str = ""
    repaired: str = ""
    translated: str = ""

    def __post_init__(self) -> None:
        _check_texts(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """When a stage started, from receipt of the job, and how long it took; in milliseconds."""

    stage: Stage
    started_ms: int
    took_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Translated:
    """A translation.

    Args:
        source: the recognised text; each text has at most 64 KiB in UTF-8.
        repaired: the text after semantic repair.
        translated: the translated text.
        speech: audio of the translation, at most 3 MiB; empty if none was asked for.
        speech_format: the format of `speech`.
        joined: indexes of earlier utterances whose held audio is part of this result.
        held_bytes: how much of the end of the joined audio the node keeps for the next job. The
            scheduler can give it to another node if this one is lost.
        timings: of the stages, for traces.

    Raises:
        ValueError: names the argument and what is allowed.
    """

    source: str = ""
    repaired: str = ""
    translated: str = ""
    speech: bytes = b""
    speech_format: AudioFormat | None = None
    joined: Sequence[int] = ()
    held_bytes: int = 0
    timings: Sequence[Timing] = ()

    def __post_init__(self) -> None:
        _check_texts(self)
        for name, count, most in (
            ("joined", len(self.joined), MAX_JOINED),
            ("timings", len(self.timings), MAX_TIMINGS),
        ):
            if count > most:
                raise ValueError(f"{name}: {count} entries; at most {most} are allowed")
        if len(self.speech) > MAX_SPEECH_BYTES:
            raise ValueError(
                f"speech: {len(self.speech)} bytes; at most {MAX_SPEECH_BYTES} are allowed"
            )
        if self.speech and self.speech_format is None:
            raise ValueError("speech_format: is required with speech, such as job.audio_format")


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """The sentence is unfinished: the node keeps the audio for the session's next job.

    The dispatcher is told at once, and sends the session's next job in this direction here.
    """

    timings: Sequence[Timing] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NoSpeech:
    """The audio contains no speech. For the arguments see Translated."""

    joined: Sequence[int] = ()
    held_bytes: int = 0
    timings: Sequence[Timing] = ()


Result = Translated | Held | NoSpeech


def _check_texts(texts: Partial | Translated) -> None:
    for name in ("source", "repaired", "translated"):
        text = getattr(texts, name)
        size = len(text.encode("utf-8", "replace")) if len(text) * 4 > MAX_TEXT_BYTES else 0
        if size > MAX_TEXT_BYTES:
            raise ValueError(f"{name}: {size} bytes in UTF-8; at most {MAX_TEXT_BYTES} are allowed")
