"""Real speech through a real scheduler and real nodes, where their engines are installed."""

import json
import os
import subprocess
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from interpreter_node import parts
from interpreter_node.settings import models_folder
from interpreter_node.translators.apertium import INSTALL, is_installed
from interpreter_node.voices.espeak import Espeak
from interpreter_processes import LINGUA, SMALL_ENGINES, await_nodes, end_nodes, start_nodes

from lingua_scheduler.cli.up.local_scheduler import LocalScheduler
from lingua_scheduler.cli.up.talk_page import talk_page
from tests.support.spoken import spoken
from tests.support.talk import Talk

MODELS = models_folder(os.environ)
NEEDED = (parts.MOONSHINE["en"], parts.SILERO, parts.TOKENIZER)
pytestmark = [
    pytest.mark.skipif(not is_installed(), reason=f"Apertium is not installed: {INSTALL}"),
    pytest.mark.skipif(
        not all((MODELS / name).exists() for name in NEEDED),
        reason=f"the models are not in {MODELS}: make get-models",
    ),
]
WITHIN_S = 100.0
# The address of the talk page, among the variables.
PAGE = "TALK_PAGE"
SENTENCE = "The children are playing in the garden with the dog."


@pytest.fixture(scope="module")
def environ() -> Iterator[dict[str, str]]:
    """A scheduler with one node, which is enough to load; where to find it."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LINGUA_")}
    free = {
        f"LINGUA_{service}_{what}": "127.0.0.1:0"
        for service in ("POOL", "DISPATCHER", "GATEWAY")
        for what in ("LISTEN", "METRICS_LISTEN")
    }
    free["LINGUA_GATEWAY_WEB_LISTEN"] = "127.0.0.1:0"
    with LocalScheduler(environ={**kept, **free}) as up:
        found = {
            f"LINGUA_{service.upper()}_ADDRESS": up.addresses(service)
            for service in ("pool", "gateway")
        }
        page = talk_page(up)
        assert page is not None
        found[PAGE] = page.url
        nodes = start_nodes(("n1",), up.address("dispatcher"), *SMALL_ENGINES)
        try:
            await_nodes(nodes, {**kept, **found})
            yield {**kept, **found}
        finally:
            end_nodes(nodes)


def speak(
    environ: dict[str, str], path: Path, *said: str, options: tuple[str, ...] = ("--to", "es")
) -> list[dict[str, Any]]:
    voice = Espeak()
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        # Not the rate that the models want.
        file.setframerate(voice.rate)
        for text in said:
            file.writeframes(b"".join(voice.speak(text, "en")))
    ended = subprocess.run(
        [*LINGUA, "speak", str(path), "--fast", "--from", "en", *options, "--json"],
        env=environ,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
    )
    assert ended.returncode == 0, ended.stderr
    results: list[dict[str, Any]] = json.loads(ended.stdout)["results"]
    return results


def test_english_speech_becomes_spanish_text_and_speech(
    environ: dict[str, str], tmp_path: Path
) -> None:
    (result,) = speak(environ, tmp_path / "hello.wav", SENTENCE)
    assert result["kind"] == "TRANSLATED"
    assert "garden" in result["texts"]["source"].lower()
    assert "jardín" in result["texts"]["translated"].lower()
    assert result["speech_bytes"] > result["speech_rate_hz"]
    stages = [each["stage"] for each in result["timings"]["stages"]]
    assert stages == ["ASR", "SEMANTIC", "NMT", "TTS"]


def test_captions_are_what_was_said_and_nothing_else(
    environ: dict[str, str], tmp_path: Path
) -> None:
    options = ("--to", "en", "--text-only")
    (result,) = speak(environ, tmp_path / "hello.wav", SENTENCE, options=options)
    assert "garden" in result["texts"]["translated"].lower()
    assert result["texts"]["translated"] == result["texts"]["repaired"]
    assert result["speech_bytes"] == 0
    assert [each["stage"] for each in result["timings"]["stages"]] == ["ASR", "SEMANTIC"]


def test_speech_that_is_cut_by_its_length_comes_out_whole(
    environ: dict[str, str], tmp_path: Path
) -> None:
    held, whole = speak(environ, tmp_path / "long.wav", *[SENTENCE] * 6)
    assert (held["kind"], whole["kind"]) == ("HELD", "TRANSLATED")
    assert whole["joined"] == [0]
    assert whole["texts"]["source"].lower().count("garden") >= 5


async def test_somebody_at_the_talk_page_gets_words_while_it_works_and_speech(
    environ: dict[str, str],
) -> None:
    (result,), client = await Talk(environ[PAGE]).converse("en", "es", spoken(SENTENCE))
    assert "garden" in result["texts"]["source"].lower()
    assert "jardín" in result["texts"]["translated"].lower()
    partials = [event["partial"]["texts"] for event in client.events if "partial" in event]
    assert any(each["source"] for each in partials)
    speech_format = result["speechFormat"]
    assert len(client.speech[0]) > speech_format["sampleRateHz"]
    assert speech_format["encoding"] == "AUDIO_ENCODING_PCM_S16LE"


@pytest.mark.skipif(
    not (MODELS / parts.MOONSHINE["es"]).exists(), reason="the Spanish model was not accepted"
)
async def test_two_people_talk_english_and_spanish_at_the_talk_page(
    environ: dict[str, str],
) -> None:
    said = (spoken(SENTENCE), spoken("Los niños juegan en el jardín con el perro.", language="es"))
    question, answer = (await Talk(environ[PAGE]).converse("en", "es", *said))[0]
    assert "jardín" in question["texts"]["translated"].lower()
    assert "jardín" in answer["texts"]["source"].lower()
    assert "garden" in answer["texts"]["translated"].lower()
