"""Voice activity by WebRTC's detector, with a synthetic voice."""

import random
from array import array

import pytest

from lingua_scheduler.services.session_gateway.session.speech import Direction
from lingua_scheduler.services.session_gateway.session.voice_activity import (
    RATES,
    VoiceActivity,
    Voices,
)
from tests.support.spoken import spoken

AB, BA = Direction("en", "es"), Direction("es", "en")


def noise(ms: int, level: float, rate: int = 16_000) -> bytes:
    rng = random.Random(7)
    return array("h", (int(rng.gauss(0, level)) for _ in range(rate * ms // 1000))).tobytes()


def chunks(audio: bytes, size: int) -> list[bytes]:
    return [audio[at : at + size] for at in range(0, len(audio), size)]


@pytest.mark.parametrize("rate", RATES)
def test_speech_has_no_long_silence_and_what_follows_is_all_silence(rate: int) -> None:
    activity, size = VoiceActivity(rate), rate // 10 * 2
    quiet, longest = 0.0, 0.0
    for chunk in chunks(spoken(rate=rate), size):
        ms = len(chunk) / rate / 2 * 1000
        found = activity.quiet_ms(chunk)
        assert 0 <= found <= ms
        quiet = quiet + ms if found == ms else found
        longest = max(longest, quiet)
    assert longest < 500
    tail = [activity.quiet_ms(chunk) for chunk in chunks(bytes(20 * size), size)]
    # The detector itself has a short hangover.
    assert tail[5:] == [100.0] * 15


@pytest.mark.parametrize("level", [0, 10, 100, 500])
def test_steady_noise_is_silence(level: int) -> None:
    activity = VoiceActivity(16_000)
    found = [activity.quiet_ms(chunk) for chunk in chunks(noise(5000, level), 3200)]
    # It needs some time to adapt to noise.
    assert found[15:] == [100.0] * 35


def test_a_click_is_no_voice() -> None:
    activity = VoiceActivity(16_000)
    click = array("h", [20_000, -20_000] * 160).tobytes()
    audio = bytes(32_000) + click + bytes(32_000)
    assert {activity.quiet_ms(chunk) for chunk in chunks(audio, 3200)} == {100.0, 20.0}


@pytest.mark.parametrize("size", [2, 158, 640, 3202, 20_000])
def test_chunks_of_any_size_give_the_same_silence_at_the_end(size: int) -> None:
    audio = spoken() + bytes(16_000)
    activity, quiet = VoiceActivity(16_000), 0.0
    for chunk in chunks(audio, size):
        ms = len(chunk) / 32
        found = activity.quiet_ms(chunk)
        quiet = quiet + ms if found == ms else found
    whole = VoiceActivity(16_000).quiet_ms(audio)
    assert quiet == pytest.approx(whole, abs=20)
    assert 300 <= whole <= 700


def test_each_direction_is_listened_to_by_itself() -> None:
    voices = Voices(16_000)
    for chunk in chunks(spoken(), 3200):
        voices.quiet_ms(AB, chunk)
        assert voices.quiet_ms(BA, bytes(3200)) == 100.0
