"""The sample node: what it hears, and what it says of it."""

import math
from array import array
from typing import Any

import pytest

from lingua_scheduler.cli.sample_node import node as sample
from lingua_scheduler.cli.sample_node.hearing import (
    SILENCE,
    Heard,
    is_unfinished,
    measure,
    samples_of,
)
from lingua_scheduler.cli.sample_node.phrases import Phrase
from lingua_scheduler.cli.sample_node.words import LANGUAGES, heard_words
from lingua_scheduler.cli.up.sample_nodes import SampleNode, demo_nodes
from lingua_scheduler.sdk import AudioFormat, Encoding, Job, JobError, Pair, Reason
from lingua_scheduler.services.runtime.settings.settings import load_settings
from tests.support.spoken import spoken

RATE = 16_000
PCM = AudioFormat(Encoding.PCM_S16LE, RATE, 1)
HELLO = Phrase(200, 1.0, {"en": "Good morning", "es": "Buenos días"})


def tone(seconds: float, hertz: int = 200, *, rate: int = RATE, peak: int = 9000) -> "array[int]":
    count = int(seconds * rate)
    return array("h", (int(peak * math.sin(2 * math.pi * hertz * i / rate)) for i in range(count)))


def silence(seconds: float) -> "array[int]":
    return array("h", bytes(int(seconds * RATE) * 2))


def job(**fields: Any) -> Job:
    known: dict[str, Any] = {
        "job_id": "j",
        "session_id": "s",
        "utterance_index": 0,
        "pair": Pair("en", "es"),
        "audio": b"",
        "audio_format": PCM,
    }
    return Job(**{**known, **fields})


@pytest.mark.parametrize("hertz", [200, 320, 410])
@pytest.mark.parametrize("rate", [8_000, 16_000, 44_100, 48_000])
def test_a_tone_is_measured_with_its_pitch(hertz: int, rate: int) -> None:
    heard = measure(tone(1.0, hertz, rate=rate), rate)
    assert heard.tone_hz == pytest.approx(hertz, abs=sample.SAME_PITCH_HZ)
    assert heard.loud_s == pytest.approx(1.0, abs=0.02)


def test_the_pitch_is_right_with_silence_around_and_within() -> None:
    heard = measure(silence(0.5) + tone(0.6) + silence(0.4) + tone(0.5) + silence(1.0), RATE)
    assert heard.tone_hz == pytest.approx(200, abs=sample.SAME_PITCH_HZ)
    assert heard.spoken_s == pytest.approx(1.5, abs=0.02)
    assert heard.loud_s == pytest.approx(1.1, abs=0.02)


def test_a_tone_may_change_its_loudness_as_microphones_make_it() -> None:
    swelling = array(
        "h", (int(x * (0.3 + 0.7 * abs(math.sin(at / 9000)))) for at, x in enumerate(tone(2.0)))
    )
    assert measure(swelling, RATE).tone_hz == pytest.approx(200, abs=sample.SAME_PITCH_HZ)


@pytest.mark.parametrize(
    "text", ["Good morning, where is the station", "Aaaaah", "One two three four five six seven"]
)
def test_a_voice_is_no_tone_so_that_no_sentence_is_put_into_its_mouth(text: str) -> None:
    audio = spoken(text)
    heard = measure(samples_of(audio, PCM), RATE)
    assert heard.tone_hz == 0
    # It is measured in windows of 10 ms.
    assert 0.3 < heard.spoken_s < len(audio) / 2 / RATE + 0.01
    every_pitch = [Phrase(hertz, 1.0, HELLO.texts) for hertz in range(50, 1000, 10)]
    assert sample.phrase_of(heard, job(), every_pitch) is None


def test_silence_and_faint_noise_are_no_speech() -> None:
    assert measure(silence(1.0), RATE) == SILENCE
    assert measure(tone(1.0, peak=400), RATE) == SILENCE
    assert measure(array("h"), RATE) == SILENCE


def test_one_channel_of_several_is_heard_and_half_a_sample_ignored() -> None:
    left = tone(0.1)
    both = array("h", (each for sample in left for each in (sample, 0)))
    stereo = AudioFormat(Encoding.PCM_S16LE, RATE, 2)
    assert samples_of(both.tobytes() + b"x", stereo) == left


def test_what_it_cannot_hear_it_refuses_for_good() -> None:
    opus = AudioFormat(Encoding.OPUS, 48_000, 1)
    with pytest.raises(JobError, match="PCM only") as caught:
        samples_of(b"packet", opus)
    assert not caught.value.worth_retry


@pytest.mark.parametrize(
    ("reason", "loud_end", "unfinished"),
    [
        (Reason.MAX_DURATION, False, True),
        (Reason.TIMEOUT, True, True),
        (Reason.TIMEOUT, False, False),
        (Reason.INTERRUPTED, True, True),
        (Reason.IS_FINAL, True, False),
    ],
)
def test_a_sentence_is_unfinished_if_it_was_cut_or_is_loud_at_the_end(
    reason: Reason, loud_end: bool, unfinished: bool
) -> None:
    samples = tone(0.5) if loud_end else tone(0.5) + silence(0.2)
    assert is_unfinished(job(reason=reason), samples) is unfinished


def test_it_has_words_in_every_language_that_demo_nodes_offer() -> None:
    said = {language: heard_words(language, 2.34) for language in LANGUAGES}
    assert said["en"] == "Demo: heard 2.3 s of speech."
    assert "2,3 s" in said["es"]
    assert "2.3" in said["zh"]
    assert len(set(said.values())) == len(LANGUAGES)
    assert heard_words("qaa", 2.34) == said["en"]


def test_a_tone_gets_its_sentence_only_in_languages_that_it_has() -> None:
    heard = Heard(spoken_s=1.0, loud_s=1.0, tone_hz=203.0)
    assert sample.phrase_of(heard, job(), [HELLO]) is HELLO
    assert sample.phrase_of(heard, job(pair=Pair("en", "fr")), [HELLO]) is None
    assert sample.text_of(heard, HELLO, "es") == "Buenos días"
    assert sample.text_of(heard, HELLO, "es", 0.5) == "Buenos…"
    assert sample.text_of(heard, None, "en", 0.5) == "Demo: heard 0.5 s of speech."


def test_captions_are_the_sentence_in_its_own_language() -> None:
    heard = Heard(spoken_s=1.0, loud_s=1.0, tone_hz=203.0)
    captions = job(pair=Pair("en", "en"))
    assert captions.is_captions
    assert sample.phrase_of(heard, captions, [HELLO]) is HELLO
    assert sample.text_of(heard, HELLO, captions.pair.tgt) == "Good morning"


def test_it_offers_each_language_to_each_and_to_itself() -> None:
    offered = {("en", "en"), ("en", "es"), ("es", "en"), ("es", "es")}
    assert set(sample.directions(("en", "es"))) == offered


def test_the_command_of_a_node_names_what_differs_from_the_default(tmp_path: Any) -> None:
    node = SampleNode(node_id="n", langs=("en", "es"))
    assert node.command == ["sample-node", "--id", "n", "--langs", "en,es"]
    with_phrases = SampleNode(node_id="n", langs=("en",), phrases=tmp_path)
    assert with_phrases.command[-2:] == ["--phrases", str(tmp_path)]


@pytest.mark.parametrize(
    ("allowed", "offered"),
    [
        ("", LANGUAGES),
        ("iso639,qaa", LANGUAGES),
        ("zh,fr,nl", ("zh", "fr")),
        ("nl,en", ("en", "nl")),
    ],
)
def test_demo_nodes_offer_only_languages_that_are_allowed(
    allowed: str, offered: tuple[str, ...]
) -> None:
    settings = load_settings({"LINGUA_LANGUAGES": allowed})
    assert [tuple(sorted(node.langs)) for node in demo_nodes(settings)] == [
        tuple(sorted(offered))
    ] * 2


def test_demo_nodes_have_ids_of_their_own_if_others_may_use_the_redis() -> None:
    alone = load_settings({})
    assert [node.node_id for node in demo_nodes(alone)] == ["demo-1", "demo-2"]
    shared = load_settings({"LINGUA_REDIS_URL": "redis://127.0.0.1:6379/0"})
    ids = {node.node_id for _ in range(3) for node in demo_nodes(shared)}
    assert len(ids) == 6
