"""Cuts of speech in sessions with voice detection."""

from __future__ import annotations

from dataclasses import replace

from lingua_scheduler.services.session_gateway.session.speech import Direction
from tests.unit.gateway.rig import AB, BA, RULES, Rig

# Room for long speech in chunks of one byte.
VOICE = replace(RULES, max_duration_ms=10_000.0)


class Microphone(Rig):
    """A gatherer that gets audio continuously, in chunks of 100 ms."""

    def __init__(self) -> None:
        super().__init__(VOICE)

    def speak(self, ms: int, direction: Direction = AB) -> Microphone:
        """Sends audio with voice."""
        return self._send(ms, direction, quiet_ms=0.0)

    def hush(self, ms: int, direction: Direction = AB) -> Microphone:
        """Sends audio without voice."""
        return self._send(ms, direction, quiet_ms=100.0)

    def _send(self, ms: int, direction: Direction, *, quiet_ms: float) -> Microphone:
        for _ in range(ms // 100):
            self.silence(100.0)
            self.say(100.0, direction, quiet_ms=quiet_ms)
        return self

    def lengths(self) -> list[str]:
        """The cuts since the last call: their reasons and durations."""
        return [f"{word.split()[0]} {100 * (len(word.split()) - 1)}" for word in self.told()]


def test_a_pause_in_audio_that_never_stops_is_cut_after_the_silence() -> None:
    rig = Microphone().speak(2000).hush(700)
    assert rig.lengths() == []
    # It is cut at once and includes the silence: no audio is removed.
    assert rig.hush(100).lengths() == ["pause 2800"]
    assert rig.speak(1000).hush(800).lengths() == ["pause 1800"]


def test_without_voice_detection_the_same_audio_has_no_pause() -> None:
    rig = Rig(VOICE)
    for _ in range(50):
        rig.silence(100.0).say(100.0)
    assert rig.told() == []


def test_a_chunk_that_ends_with_silence_begins_the_pause() -> None:
    rig = Microphone().speak(1000)
    rig.say(100.0, quiet_ms=60.0)
    # 60 + 700 is not enough.
    assert rig.hush(700).lengths() == []
    assert rig.hush(100).lengths() == ["pause 1900"]


def test_silence_shorter_than_a_pause_cuts_nothing() -> None:
    rig = Microphone()
    for _ in range(4):
        rig.speak(500).hush(700)
    assert rig.speak(100).lengths() == []


def test_silence_before_speech_is_part_of_the_utterance() -> None:
    rig = Microphone().hush(3000)
    assert rig.lengths() == []
    assert rig.speak(1000).hush(800).lengths() == ["pause 4800"]


def test_a_sentence_is_not_cut_because_of_the_silence_before_it() -> None:
    rig = Microphone().hush(9000).speak(9000).hush(800)
    assert rig.lengths() == ["pause 18800"]


def test_long_silence_is_cut_as_a_pause_and_its_turn_does_not_go_on() -> None:
    rig = Microphone().hush(20_000)
    assert rig.lengths() == ["pause 10000", "pause 10000"]


def test_silence_leaves_room_for_a_sentence_below_the_largest_size() -> None:
    rig = Microphone()
    for _ in range(3):
        rig.say(100.0, size=200, quiet_ms=100.0)
    assert rig.lengths() == ["pause 300"]


def test_long_speech_is_cut_by_its_duration_and_its_rest_ends_the_turn() -> None:
    rig = Microphone().speak(10_300)
    assert rig.lengths() == ["long 10100"]
    assert rig.hush(800).lengths() == ["pause 1000"]


def test_a_rest_that_is_all_silence_ends_the_turn_after_a_pause() -> None:
    rig = Microphone().speak(10_000).hush(200)
    assert rig.lengths() == ["long 10100"]
    assert rig.hush(600).lengths() == []
    assert rig.hush(100).lengths() == ["pause 800"]


def test_a_short_word_before_a_pause_is_an_utterance() -> None:
    assert Microphone().speak(200).hush(800).lengths() == ["pause 1000"]


def test_while_the_app_plays_speech_silence_is_no_pause() -> None:
    rig = Microphone().speak(1000)
    rig.playback(True)
    assert rig.hush(3000).lengths() == []
    rig.playback(False)
    assert rig.hush(700).lengths() == []
    assert rig.hush(100).lengths() == ["pause 4800"]


def test_audio_that_stops_is_a_pause_as_without_voice_detection() -> None:
    rig = Microphone().speak(1000)
    assert rig.silence(2999).lengths() == []
    assert rig.silence(1 + 150).lengths() == ["pause 1000"]


def test_an_end_that_is_said_counts_at_once() -> None:
    rig = Microphone().speak(1000)
    assert rig.end().silence(200).lengths() == ["final 1000"]


def test_who_interrupts_ends_what_the_other_says() -> None:
    rig = Microphone().speak(1000)
    assert rig.speak(100, BA).lengths() == ["interrupted 1000"]
