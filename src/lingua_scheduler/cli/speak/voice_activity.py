"""Detects where speech begins and ends, by loudness.

Audio that is louder than the noise of the room for long enough counts as speech. This needs no
model, but mistakes a loud radio for a speaker.
"""

import math
from array import array
from collections import deque
from dataclasses import dataclass

from lingua_scheduler.sdk import AudioFormat, Encoding

FRAME_MS = 20
# Silence that ends an utterance. Less would cut when people think; more would only delay.
END_MS = 800
# Audio before the first loud frame that is also sent, since words begin softly.
BEFORE_MS = 300
# A click is shorter than this.
BEGIN_MS = 60
# Of 32767. A quiet room has about 30, a quiet voice about 500.
LEAST_LEVEL = 150.0
# Ratio to the noise that counts as speech; the lower one applies while somebody speaks.
BEGIN_RATIO, GO_ON_RATIO = 3.5, 2.0
# How fast the noise level rises: the share of each frame.
NOISE_RISE = 0.01


@dataclass(frozen=True, slots=True)
class Heard:
    """Audio to send, and whether an utterance ends after it."""

    audio: bytes
    ends: bool = False


class VoiceActivity:
    """Finds the speech in a stream of audio, and the end of each utterance.

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
        # Recent frames, which include the first ones of speech when it is detected.
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
        """Process audio; returns the speech in order, or nothing during silence."""
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
        """End the stream."""
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
        # The noise level is measured while nobody speaks; it falls at once and rises slowly.
        if loudness < self._noise:
            self._noise = loudness
        elif not self._speaking:
            self._noise += NOISE_RISE * (loudness - self._noise)


def level(frame: bytes) -> float:
    """The root mean square of 16-bit samples."""
    samples = array("h", frame)
    return math.sqrt(sum(each * each for each in samples) / len(samples)) if samples else 0.0
