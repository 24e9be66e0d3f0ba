"""The engines themselves, where they are installed; .ci/run installs those that come quickly."""

import os

import numpy as np
import pytest
from interpreter_node import parts
from interpreter_node.detection import Silero
from interpreter_node.engines import RATE, MissingPartError, Samples, Voice
from interpreter_node.hearing import resampled
from interpreter_node.recognizers.moonshine import Moonshine
from interpreter_node.settings import models_folder
from interpreter_node.translators.apertium import INSTALL, Apertium, is_installed
from interpreter_node.voices.espeak import Espeak
from interpreter_node.voices.pico import Pico
from word_errors import words

apertium = pytest.mark.skipif(not is_installed(), reason=f"Apertium is not installed: {INSTALL}")


def model(name: str) -> object:
    there = (models_folder(os.environ) / name).exists()
    return pytest.mark.skipif(not there, reason=f"{name} was not fetched: make get-models")


def said(voice: Voice, text: str, language: str) -> Samples:
    audio = b"".join(voice.speak(text, language))
    return resampled(np.frombuffer(audio, "<i2").astype(np.float32) / 32768, voice.rate)


def a_voice() -> Voice:
    """The better one, if it was compiled."""
    try:
        return Pico()
    except MissingPartError:
        return Espeak()


@apertium
def test_apertium_translates_both_ways_and_keeps_texts_apart() -> None:
    translator = Apertium()
    try:
        for _ in range(2):
            assert translator.translate("The house is big.", "en", "es") == "La casa es grande."
            assert translator.translate("La casa es grande.", "es", "en") == "The house is big."
        odd = translator.translate("It costs 5 $ [or] ^more^ </b> \\ @ *.", "en", "es")
        assert "[o]" in odd
        assert translator.translate("The house is big.", "en", "es") == "La casa es grande."
    finally:
        translator.close()


@pytest.mark.parametrize("language", ["en", "es"])
def test_espeak_speaks(language: str) -> None:
    voice = Espeak()
    short, long = (said(voice, "no " * count, language) for count in (1, 8))
    assert np.max(np.abs(short)) > 0.1
    assert len(long) > 2 * len(short)


@model(parts.SILERO)
def test_silero_hears_speech_and_no_noise() -> None:
    detector = Silero(models_folder(os.environ) / parts.SILERO)
    speech = said(a_voice(), "Where is the nearest pharmacy?", "en")
    noise = np.random.default_rng(1).normal(0, 0.05, RATE).astype(np.float32)
    judged = detector.judge(np.concatenate((noise, speech, noise)))
    middle = judged[35 : 31 + len(speech) // 512]
    assert sum(middle) > 0.6 * len(middle)
    assert sum(judged[:30]) == 0


@model(parts.MOONSHINE["en"])
def test_moonshine_understands_english_and_grows_by_words() -> None:
    folders = {"en": models_folder(os.environ) / parts.MOONSHINE["en"]}
    recognizer = Moonshine(folders, models_folder(os.environ) / parts.TOKENIZER)
    speech = said(a_voice(), "The children are playing in the garden with the dog.", "en")
    texts = list(recognizer.transcribe(speech, "en"))
    assert len(texts) > 5
    assert {"children", "playing", "garden"} & set(words(texts[-1]))
    # An engine that is asked for no more does no more: this returns at once.
    assert next(iter(recognizer.transcribe(speech, "en")))
