"""`make run-real`, where its environment and its models are installed."""

import asyncio
import os
from pathlib import Path

import pytest
from interpreter_node.fetching import is_there, needed_parts
from interpreter_node.settings import models_folder, read_settings
from interpreter_node.translators.apertium import install_command, is_installed
from interpreter_node.translators.pivot import APERTIUM

from tests.support.commands import environment
from tests.support.process import CommandProcess
from tests.support.talk import Talk

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-interpreter" / "bin" / "python"
MODELS = models_folder(os.environ)
pytestmark = [
    pytest.mark.long,
    # Most of it is speech, at the pace of speech.
    pytest.mark.timeout(400),
    pytest.mark.skipif(
        not is_installed(APERTIUM), reason=f"Apertium is missing: {install_command(APERTIUM)}"
    ),
    pytest.mark.skipif(
        any(not is_there(part, MODELS) for part in needed_parts(read_settings([])))
        or not PYTHON.exists(),
        reason="what make run-real needs is not installed: make get-models",
    ),
]
WITHIN_S = 300.0
PROGRAM = [PYTHON, ROOT / "examples" / "real_conversation.py"]


def guarded(folder: Path) -> dict[str, str]:
    """The environment of a scheduler with auth, which ends when its show is over."""
    secret = folder / "secret"
    secret.write_text("a secret of the tests, which is long enough")
    return environment(
        RUN_SECONDS="0",
        OUT=str(folder / "out"),
        LINGUA_AUTH="on",
        LINGUA_AUTH_SECRET_FILE=str(secret),
    )


def test_it_says_where_the_page_is_first_of_all_and_plays_its_conversation(tmp_path: Path) -> None:
    with CommandProcess("run-real", PROGRAM, env=guarded(tmp_path)) as running:
        running.wait_for(lambda: "\n" in running.output(), "a first line", WITHIN_S)
        first = running.output().splitlines()[0]
        assert first.startswith("Talk   http://127.0.0.1:")
        # The page is there from the beginning, and its token admits.
        talk = Talk(first.split()[1])
        assert asyncio.run(talk.get("/"))[0] == 200
        assert asyncio.run(talk.get("/v1/languages"))[0] == 200
        assert running.wait_end(WITHIN_S) == 0, running.output() + running.log()
        assert "It ends by itself." in running.output()


def test_in_a_room_everybody_gets_what_is_said_in_their_own_language(tmp_path: Path) -> None:
    with CommandProcess("room", [*PROGRAM, "--room"], env=guarded(tmp_path)) as running:
        assert running.wait_end(WITHIN_S) == 0, running.output() + running.log()
        shown = running.output()
    lines = [line.split(maxsplit=4) for line in shown.splitlines() if line.startswith("#")]
    texts = {
        name: " ".join(text for _, guest, _, _, text in lines if guest == name).lower()
        for name in ("Luis", "Emma", "Marta")
    }
    assert "museum" in texts["Emma"]
    assert "museo" in texts["Luis"]
    # She came late: the first captions are from before.
    assert "museo" in texts["Marta"]
    assert [when for _, name, _, when, _ in lines if name == "Marta"][:2] == ["earlier"] * 2
    assert "0 missing; " in shown
    assert list((tmp_path / "out").glob("luis-*.wav"))
    assert not list((tmp_path / "out").glob("emma-*.wav"))
    links = [line for line in shown.splitlines() if line.startswith("To ")]
    assert [line.split()[1].strip(",:") for line in links] == ["listen", "speak"]
    assert all("/room#room=" in line and "&token=room." in line for line in links)
