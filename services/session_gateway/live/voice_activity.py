"""Whether somebody speaks: WebRTC's detector over the chunks of a session (decision 26)."""

import webrtcvad

from lingua_scheduler.services.session_gateway.session.speech import Direction

# What the detector understands.
RATES = (8000, 16_000, 32_000, 48_000)
# How sure it has to be, 0 to 3. Below 2 it takes some pauses for speech (bench/voice_activity.py).
MODE = 2
# Voice is at least so many voiced frames in a row: a click is shorter.
RUN = 3
_FRAME_MS = 20
_SAMPLE_BYTES = 2


class VoiceActivity:
    """Listens to the audio of one speaker; PCM of 16 bits, one channel, one of `RATES`."""

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._frame_bytes = rate * _FRAME_MS // 1000 * _SAMPLE_BYTES
        self._vad = webrtcvad.Vad(MODE)
        self._rest = b""
        self._run = 0

    def quiet_ms(self, audio: bytes) -> float:
        """How much of the end of this audio is without voice; if there is none, all of it."""
        ms = len(audio) * 1000 / (self._rate * _SAMPLE_BYTES)
        size, is_speech, rate = self._frame_bytes, self._vad.is_speech, self._rate
        if self._rest:
            audio = self._rest + audio
        run, voiced_end = self._run, -1
        whole = len(audio) - len(audio) % size
        for at in range(0, whole, size):
            if is_speech(audio[at : at + size], rate):
                run += 1
                if run >= RUN:
                    voiced_end = at + size
            else:
                run = 0
        self._run, self._rest = run, audio[whole:]
        if voiced_end < 0:
            return ms
        return min(ms, (len(audio) - voiced_end) * 1000 / (self._rate * _SAMPLE_BYTES))


class Voices:
    """Listens to a session: to each direction by itself, since each has its own speaker."""

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._speakers: dict[Direction, VoiceActivity] = {}

    def quiet_ms(self, direction: Direction, audio: bytes) -> float:
        """See VoiceActivity."""
        speaker = self._speakers.get(direction)
        if speaker is None:
            speaker = self._speakers[direction] = VoiceActivity(self._rate)
        return speaker.quiet_ms(audio)
