"""Who listens without a button has to hear for itself where speech begins and ends.

By loudness alone: what stands out of the noise of the room for long enough is speech. It needs no
model, and takes a loud radio for a speaker.
"""

import math
from array import array
from collections import deque
from dataclasses import dataclass

from lingua_scheduler.sdk import AudioFormat, Encoding

FRAME_MS = 20
# So much silence ends an utterance. Less would cut where people think; more is a wait for nothing.
END_MS = 800
# Sent from before the first loud frame: words begin softly.
BEFORE_MS = 300
# A click is shorter than this.
BEGIN_MS = 60
# Of 32767. A quiet room has about 30, a quiet voice about 500.
LEAST_LEVEL = 150.0
# So many times the noise is speech; while somebody speaks, the lower one is enough.
BEGIN_RATIO, GO_ON_RATIO = 3.5, 2.0
# How soon a louder room is taken for a room: its share in the noise, a frame.
NOISE_RISE = 0.01


@dataclass(frozen=True, slots=True)
class Heard:
    """What is to be done with audio: what to send, and whether an utterance ends after it."""

    audio: bytes
    ends: bool = False


class VoiceActivity:
    """Takes audio as it comes; gives the speech in it, and where each utterance ends.

    Args:
        audio_format: of what is fed; PCM.
        end_ms: of silence that end an utterance.
    """

    def __init__(self, audio_format: AudioFormat, *, end_ms: int = END_MS) -> None:
        if audio_format.encoding is not Encoding.PCM_S16LE:
            raise ValueError("audio_format: must be PCM")
        samples = audio_format.sample_rate_hz * FRAME_MS // 1000
        self._frame_bytes = samples * 2 * audio_format.channels
        self._end_frames = max(1, end_ms // FRAME_MS)
        self._rest = b""
        # When speech is sure, its first frames are among them.
        self._before: deque[bytes] = deque(maxlen=(BEFORE_MS + BEGIN_MS) // FRAME_MS - 1)
        self._loud = 0
        self._quiet = 0
        self._speaking = False
        self._noise = LEAST_LEVEL / BEGIN_RATIO

    @property
    def speaking(self) -> bool:
        """Whether an utterance has begun and not ended."""
        return self._speaking

    def feed(self, audio: bytes) -> list[Heard]:
        """In order; nothing where nobody speaks."""
        self._rest += audio
        found: list[Heard] = []
        speech = bytearray()
        whole = len(self._rest) // self._frame_bytes * self._frame_bytes
        frames, self._rest = self._rest[:whole], self._rest[whole:]
        for at in range(0, whole, self._frame_bytes):
            frame = frames[at : at + self._frame_bytes]
            was_speaking = self._speaking
            self._judge(level(frame))
            if self._speaking and not was_speaking:
                speech += b"".join(self._before)
                self._before.clear()
            if self._speaking or was_speaking:
                speech += frame
            else:
                self._before.append(frame)
            if was_speaking and not self._speaking:
                found.append(Heard(bytes(speech), ends=True))
                speech.clear()
        if speech:
            found.append(Heard(bytes(speech)))
        return found

    def end(self) -> list[Heard]:
        """No more audio comes."""
        rest, self._rest = self._rest, b""
        if not self._speaking:
            return []
        self._speaking = False
        return [Heard(rest, ends=True)]

    def _judge(self, loudness: float) -> None:
        ratio = GO_ON_RATIO if self._speaking else BEGIN_RATIO
        if loudness >= max(LEAST_LEVEL, self._noise * ratio):
            self._loud, self._quiet = self._loud + 1, 0
        else:
            self._loud, self._quiet = 0, self._quiet + 1
        if not self._speaking and self._loud * FRAME_MS >= BEGIN_MS:
            self._speaking = True
        elif self._speaking and self._quiet >= self._end_frames:
            self._speaking = False
        # Noise is what remains where nobody speaks; it falls at once, and rises slowly.
        if loudness < self._noise:
            self._noise = loudness
        elif not self._speaking:
            self._noise += NOISE_RISE * (loudness - self._noise)


def level(frame: bytes) -> float:
    """The root mean square of 16-bit samples."""
    samples = array("h", frame)
    return math.sqrt(sum(each * each for each in samples) / len(samples)) if samples else 0.0
