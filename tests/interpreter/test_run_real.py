"""`make run-real`, where its environment and its models are installed."""

import asyncio
import os
from pathlib import Path

import pytest
from interpreter_node import parts
from interpreter_node.apertium import INSTALL, is_installed
from interpreter_node.settings import models_folder

from tests.support.commands import environment
from tests.support.process import CommandProcess
from tests.support.talk import Talk

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-interpreter" / "bin" / "python"
MODELS = models_folder(os.environ)
NEEDED = (parts.MOONSHINE["en"], parts.SILERO, parts.TOKENIZER)
pytestmark = [
    pytest.mark.skipif(not is_installed(), reason=f"Apertium is not installed: {INSTALL}"),
    pytest.mark.skipif(
        not all((MODELS / name).exists() for name in NEEDED) or not PYTHON.exists(),
        reason="what make run-real needs is not installed: make get-models",
    ),
]
WITHIN_S = 300.0


def test_it_says_where_the_page_is_first_of_all_and_plays_its_conversation(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("a secret of the tests, which is long enough")
    environ = environment(
        RUN_SECONDS="0",
        OUT=str(tmp_path / "out"),
        LINGUA_AUTH="on",
        LINGUA_AUTH_SECRET_FILE=str(secret),
    )
    program = [PYTHON, ROOT / "examples" / "real_conversation.py"]
    with CommandProcess("run-real", program, env=environ) as running:
        running.wait_for(lambda: "\n" in running.output(), "a first line", WITHIN_S)
        first = running.output().splitlines()[0]
        assert first.startswith("Talk   http://127.0.0.1:")
        # The page is there from the beginning, and its token admits.
        talk = Talk(first.split()[1])
        assert asyncio.run(talk.get("/"))[0] == 200
        assert asyncio.run(talk.get("/v1/languages"))[0] == 200
        assert running.wait_end(WITHIN_S) == 0, running.output() + running.log()
        assert "It ends by itself." in running.output()
