"""Voice activity detection with WebRTC's detector (decision 26)."""

import webrtcvad

from lingua_scheduler.services.session_gateway.session.speech import Direction

# Sample rates that the detector supports.
RATES = (8000, 16_000, 32_000, 48_000)
# How aggressive it is, 0 to 3. Below 2 it takes some pauses for speech (bench/voice_activity.py).
MODE = 2
# Voiced frames in a row that count as voice: a click is shorter.
RUN = 3
_FRAME_MS = 20
_SAMPLE_BYTES = 2


class VoiceActivity:
    """Detects voice in the audio of one speaker: 16-bit mono PCM, at one of `RATES`."""

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._frame_bytes = rate * _FRAME_MS // 1000 * _SAMPLE_BYTES
        self._vad = webrtcvad.Vad(MODE)
        self._rest = b""
        self._run = 0

    def quiet_ms(self, audio: bytes) -> float:
        """Returns how much of the end of this audio has no voice; all of it if there is none."""
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
    """Detects voice in a session: separately per direction, as each has its own speaker."""

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._speakers: dict[Direction, VoiceActivity] = {}

    def quiet_ms(self, direction: Direction, audio: bytes) -> float:
        """See VoiceActivity."""
        speaker = self._speakers.get(direction)
        if speaker is None:
            speaker = self._speakers[direction] = VoiceActivity(self._rate)
        return speaker.quiet_ms(audio)
