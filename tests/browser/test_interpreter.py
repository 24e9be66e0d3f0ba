"""Real speech through the talk page and interpreter nodes, where their engines are installed."""

import os
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import expect

from tests.browser.chromium import Browsers
from tests.browser.opening import OpenPage
from tests.browser.scheduler import TalkScheduler
from tests.browser.sounds import RATE, Samples, Sound, silence
from tests.browser.talk_page import Side

ROOT = Path(__file__).parents[2]
# Models are loaded, and a busy machine needs long for that.
pytestmark = pytest.mark.timeout(300)
# Of the words; a synthetic voice is understood well, not perfectly.
MAX_ERRORS = 0.25


def example(name: str) -> Any:
    """A module of the examples or benchmarks, which are not installed."""
    for folder in (str(ROOT / "examples"), str(ROOT / "bench")):
        if folder not in sys.path:
            sys.path.append(folder)
    return import_module(name)


def require(language: str) -> None:
    """Skips the test if speech of this language cannot be interpreted here."""
    apertium = example("interpreter_node.translators.apertium")
    parts = example("interpreter_node.parts")
    if not apertium.is_installed():
        pytest.skip(f"Apertium is not installed: {apertium.INSTALL}")
    folder = example("interpreter_node.settings").models_folder(os.environ)
    for name in (parts.MOONSHINE[language], parts.SILERO, parts.TOKENIZER):
        if not (folder / name).exists():
            pytest.skip(f"{name} is not in {folder}: make get-models")


def sentence(language: str, text: str) -> Sound:
    """A synthetic voice, and then silence."""

    def make() -> Samples:
        voice = example("interpreter_node.voices.espeak").Espeak()
        pcm = np.frombuffer(b"".join(voice.speak(text, language)), "<i2") / 32_768
        places = np.arange(0, len(pcm), voice.rate / RATE)
        spoken = np.interp(places, np.arange(len(pcm)), pcm)
        return np.concatenate([silence(0.5), spoken, silence(3.0)])

    return Sound(f"sentence-{language}", make)


@pytest.fixture(scope="module")
def url(browsers: Browsers, redis_url: str) -> Iterator[str]:
    """The page of a scheduler with an interpreter node."""
    require("en")
    processes = example("interpreter_processes")
    patient = {"job_timeout_ms": 30_000, "running_lease_ms": 40_000}
    with TalkScheduler(redis_url=redis_url, **patient) as scheduler:
        dispatcher = scheduler.dispatchers[0].address
        nodes = processes.start_nodes(("interpreter",), dispatcher, *processes.SMALL_ENGINES)
        try:
            scheduler.until_offers("en", "es", within=120.0)
            yield scheduler.url
        finally:
            processes.end_nodes(nodes)
        scheduler.check_logs()


@pytest.mark.parametrize(
    ("side", "language", "text", "translation"),
    [
        ("a", "en", "The children are playing in the garden with the dog.", "jardín"),
        ("b", "es", "Mi hermana vive en un pueblo pequeño cerca del mar.", "sister"),
    ],
    ids=["English", "Spanish"],
)
def test_what_is_said_is_recognised_translated_and_spoken(
    url: str, open_page: OpenPage, side: Side, language: str, text: str, translation: str
) -> None:
    require(language)
    page = open_page(url, sound=sentence(language, text))
    page.choose("en", "es")
    page.page.locator("button[data-action=hands-free]").click()
    page.talk_button(side).click()
    word_errors = example("word_errors").word_errors
    # The first one may begin in the middle of the sentence.
    page.until(
        lambda: [
            each
            for each in page.events("result")
            if word_errors(text, each["texts"]["source"]).rate <= MAX_ERRORS
        ],
        f"understood: {text}",
        within=100.0,
    )
    page.talk_button(side).click()
    page.until_settled()
    shown = page.utterances("b" if side == "a" else "a", "done").filter(has_text=translation)
    expect(shown.first).to_be_visible()
    understood = [each for each in page.events("result") if each["texts"]["translated"]]
    assert any(each["speechBytes"] > 16_000 for each in understood)
    page.until(lambda: page.wire.playbacks >= 1, "the translation is played")
    page.check()
