"""The node's handler, with engines that are small enough to know what they must answer."""

from typing import Any

import pytest
from interpreter_node.interpreter import MAX_SPEECH_BYTES, Interpreter

from lingua_scheduler.sdk import (
    AudioFormat,
    Held,
    HeldAudio,
    Job,
    NoSpeech,
    Pair,
    Partial,
    Reason,
    Stage,
    Translated,
)

from .small_engines import RATE, WORD, Beep, Ears, Echo, Level, pcm


class World:
    """One node, and the next index of its session."""

    def __init__(self, *, join: bool = True, **options: Any) -> None:
        self.ears, self.voice = Ears(), Beep()
        self.held = HeldAudio()
        self.interpret = Interpreter(
            recognizer=self.ears,
            translator=Echo(),
            voice=self.voice,
            detector=Level(),
            held=self.held if join else None,
            **options,
        )
        self._next = 0

    def job(self, audio: bytes, reason: Reason = Reason.IS_FINAL, **fields: Any) -> Job:
        values: dict[str, Any] = {
            "session_id": "s",
            "utterance_index": self._next,
            "pair": Pair("en", "es"),
            "partial_interval": 0.1,
            "require_tts": True,
        }
        self._next += 1
        return Job(job_id=f"j{self._next}", audio=audio, reason=reason, **{**values, **fields})

    def items(self, *args: Any, **fields: Any) -> list[Any]:
        return list(self.interpret(self.job(*args, **fields)))

    def result(self, *args: Any, **fields: Any) -> Any:
        return self.items(*args, **fields)[-1]


@pytest.fixture
def world() -> World:
    return World()


def test_speech_goes_through_all_stages_and_each_has_its_time(world: World) -> None:
    result = world.result(pcm("hello", "big", "house"))
    assert isinstance(result, Translated)
    assert result.source == "hello big house"
    assert result.repaired == "Hello big house."
    assert result.translated == "[es] Hello big house."
    assert result.speech_format == AudioFormat(sample_rate_hz=8000)
    # A tenth of a second for each of four words.
    assert len(result.speech) == 4 * 800 * 2
    assert [each.stage for each in result.timings] == [
        *(Stage.ASR, Stage.SEMANTIC, Stage.NMT, Stage.TTS)
    ]


def test_partials_grow_while_it_decodes(world: World) -> None:
    *partials, _ = world.items(pcm("hello", "big", "house"))
    assert [each.source for each in partials[:3]] == ["hello", "hello big", "hello big house"]
    assert partials[-1] == Partial(
        source="hello big house",
        repaired="Hello big house.",
        translated="[es] Hello big house.",
    )


def test_where_only_text_is_wanted_nothing_is_spoken(world: World) -> None:
    result = world.result(pcm("hello"), require_tts=False)
    assert (result.speech, result.speech_format, world.voice.spoken) == (b"", None, 0)


def test_captions_are_recognised_and_repaired_but_neither_translated_nor_spoken(
    world: World,
) -> None:
    *partials, result = world.items(pcm("hello", "big"), pair=Pair("en", "en"), require_tts=False)
    assert isinstance(result, Translated)
    assert result.source == "hello big"
    assert result.repaired == result.translated == "Hello big."
    assert (result.speech, world.voice.spoken) == (b"", 0)
    assert [each.stage for each in result.timings] == [Stage.ASR, Stage.SEMANTIC]
    assert partials[-1] == Partial(source="hello big", repaired="Hello big.")


def test_captions_and_a_translation_of_the_same_speech_hold_their_own_audio(world: World) -> None:
    world.result(pcm("big", "and"), Reason.TIMEOUT, utterance_index=0)
    captions = {"pair": Pair("en", "en"), "require_tts": False}
    held = world.result(pcm("big", "and"), Reason.TIMEOUT, utterance_index=0, **captions)
    assert isinstance(held, Held)
    assert world.result(pcm("dog"), utterance_index=1, **captions).translated == "Big and dog."
    assert world.result(pcm("dog"), utterance_index=1).translated == "[es] Big and dog."


def test_a_word_that_was_cut_in_two_by_its_duration_comes_out_whole(world: World) -> None:
    audio, cut = pcm("hello", "big", "house", "dog"), int(2.5 * WORD) * 2
    assert isinstance(world.result(audio[:cut], Reason.MAX_DURATION), Held)
    result = world.result(audio[cut:])
    assert result.source == "hello big house dog"
    assert result.joined == (0,)
    assert len(world.held) == 0


def test_without_joining_the_same_word_is_broken() -> None:
    world = World(join=False)
    audio, cut = pcm("hello", "big", "house", "dog"), int(2.5 * WORD) * 2
    first, second = world.result(audio[:cut], Reason.MAX_DURATION), world.result(audio[cut:])
    assert first.source == "hello big house?"
    assert second.source == "house? dog"
    assert second.joined == ()


@pytest.mark.parametrize("reason", [Reason.TIMEOUT, Reason.INTERRUPTED])
def test_an_unfinished_sentence_at_a_pause_is_held_and_joined(world: World, reason: Reason) -> None:
    assert isinstance(world.result(pcm("big", "house", "and"), reason), Held)
    result = world.result(pcm("dog"), Reason.TIMEOUT)
    assert (result.source, result.joined) == ("big house and dog", (0,))


def test_a_pause_after_a_finished_sentence_is_its_end(world: World) -> None:
    assert world.result(pcm("big", "house"), Reason.TIMEOUT).source == "big house"
    assert world.result(pcm("dog"), Reason.TIMEOUT).source == "dog"


def test_what_the_speaker_ends_is_never_held(world: World) -> None:
    assert world.result(pcm("big", "house", "and")).source == "big house and"
    assert len(world.held) == 0


def test_the_other_direction_and_other_sessions_are_turns_of_their_own(world: World) -> None:
    world.result(pcm("big", "and"), Reason.TIMEOUT)
    assert world.result(pcm("dog"), pair=Pair("es", "en")).joined == ()
    assert world.result(pcm("dog"), session_id="other").joined == ()
    assert world.result(pcm("dog")).source == "big and dog"


def test_a_repeated_attempt_joins_the_same(world: World) -> None:
    world.result(pcm("big", "and"), Reason.TIMEOUT)
    again = world.job(pcm("dog"))
    job = world.interpret(again)
    # The first attempt is cancelled in its middle.
    next(job)
    job.close()
    assert list(world.interpret(again))[-1].source == "big and dog"


def test_silence_is_no_speech(world: World) -> None:
    assert world.result(bytes(RATE)) == NoSpeech()
    assert world.ears.runs == []


def test_a_flush_gives_the_text_that_is_held(world: World) -> None:
    world.result(pcm("big", "and"), Reason.TIMEOUT)
    result = world.result(b"", Reason.SESSION_CLOSE, is_flush=True)
    assert (result.source, result.joined) == ("big and", (0,))
    assert len(world.held) == 0


@pytest.mark.parametrize("rate", [8000, 16_000, 44_100])
def test_a_flush_of_nothing_is_no_speech(world: World, rate: int) -> None:
    audio_format = AudioFormat(sample_rate_hz=rate)
    assert world.result(b"", is_flush=True, audio_format=audio_format) == NoSpeech()


def test_silence_after_held_speech_ends_it(world: World) -> None:
    world.result(pcm("big", "and"), Reason.TIMEOUT)
    result = world.result(bytes(RATE))
    assert (result.source, result.joined) == ("big and", (0,))


def test_a_word_that_begins_at_the_end_of_silence_is_not_lost(world: World) -> None:
    word = pcm("hello")
    assert world.result(bytes(RATE) + word[:1000], Reason.MAX_DURATION) is not None
    assert world.result(word[1000:]).source.endswith("hello")


def test_cancel_stops_the_decoding_and_leaves_held_audio_as_it_was(world: World) -> None:
    world.result(pcm("big", "and"), Reason.TIMEOUT)
    before, done = world.held.size, world.ears.words
    job = world.job(pcm("dog", "house", "hello"))
    given = world.interpret(job)
    next(given)
    job.cancelled.set()
    assert list(given) == []
    assert world.ears.words == done + 2
    assert world.held.size == before


def test_cancel_stops_the_voice(world: World) -> None:
    job = world.job(pcm("big", "house"))
    items = []
    for item in world.interpret(job):
        items.append(item)
        if isinstance(item, Partial) and item.translated:
            job.cancelled.set()
    assert not any(isinstance(item, Translated) for item in items)
    assert world.voice.spoken == 1


def test_speech_is_no_longer_than_a_result_may_be(world: World) -> None:
    world.voice.rate = 48_000
    many = [f"w{n}" for n in range(8, 90)] * 5
    result = world.result(pcm(*many))
    assert MAX_SPEECH_BYTES - 48_000 < len(result.speech) <= MAX_SPEECH_BYTES


def test_finished_segments_of_a_turn_are_recognised_once(world: World) -> None:
    # Five seconds and a pause are a segment of their own.
    first = pcm(*(f"w{n}" for n in range(10, 37)), silence=0.6)
    world.result(first + pcm("big"), Reason.MAX_DURATION)
    assert len(world.ears.runs) == 2
    result = world.result(pcm("house"))
    assert result.source.endswith("w36 big house")
    assert [each for each in world.ears.runs if "w10" in each] == world.ears.runs[:1]


def test_nobody_who_wants_no_partials_waits_for_the_unfinished_end(world: World) -> None:
    first = pcm(*(f"w{n}" for n in range(10, 37)), silence=0.6)
    world.result(first + pcm("big"), Reason.MAX_DURATION, partial_interval=0.0)
    assert len(world.ears.runs) == 1
    assert world.result(pcm("house"), partial_interval=0.0).source.endswith("w36 big house")


def test_of_a_long_turn_finished_sentences_are_given_at_once_and_nothing_is_lost() -> None:
    world = World(long_turn_s=10.0)
    sentence = [f"w{n}" for n in range(10, 28)]
    audio = (pcm(*sentence, silence=0.6)) * 8
    size = 5 * RATE * 2 + 402
    pieces = [audio[at : at + size] for at in range(0, len(audio), size)]
    results = [world.result(each, Reason.MAX_DURATION) for each in pieces[:-1]]
    results.append(world.result(pieces[-1]))
    given = [each for each in results if isinstance(each, Translated)]
    assert len(given) > 1
    assert " ".join(each.source for each in given).split() == sentence * 8
    assert len(world.held) == 0


def test_a_turn_that_is_too_large_to_hold_is_translated_as_it_is() -> None:
    world = World()
    world.interpret._held = HeldAudio(max_turn_bytes=WORD, max_bytes=WORD)
    result = world.result(pcm("big", "and"), Reason.TIMEOUT)
    assert result.source == "big and"


def test_audio_of_another_form_is_heard_the_same(world: World) -> None:
    stereo = b"".join(bytes(pcm("hello", "big")[at : at + 2]) * 2 for at in range(0, WORD * 4, 2))
    result = world.result(stereo, audio_format=AudioFormat(channels=2))
    assert result.source == "hello big"
