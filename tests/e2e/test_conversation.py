"""`make run`: the conversation is delivered whole, what it tells to type works, and how it ends.

While it runs, people can speak through its page.
"""

import asyncio
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.cells import cell_len

from tests.support.commands import WITHIN_S, environment
from tests.support.spoken import spoken
from tests.support.talk import Talk

CONVERSATION = Path(__file__).parents[2] / "examples" / "conversation.py"


@contextmanager
def conversation(**settings: str) -> "Iterator[subprocess.Popen[str]]":
    """It runs; what still does at the end is killed."""
    running = subprocess.Popen(
        [sys.executable, str(CONVERSATION)],
        env=environment(**settings),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with running:
        try:
            yield running
        finally:
            running.kill()


def lines_until(running: "subprocess.Popen[str]", start: str) -> list[str]:
    """What it says up to the line that starts like this, or up to its end."""
    assert running.stdout is not None
    lines: list[str] = []
    for line in running.stdout:
        lines.append(line.rstrip("\n"))
        if line.startswith(start):
            break
    return lines


def test_it_is_delivered_whole_then_stays_up_for_what_it_tells_to_type_until_ctrl_c() -> None:
    with conversation(RUN_SECONDS="600") as running:
        lines = lines_until(running, "It ends by itself")
        shown = "\n".join(lines)
        assert lines[0].startswith("Lingua Scheduler: live speech translation")
        first = " ".join(lines[: next(at for at, line in enumerate(lines) if "NODE  " in line)])
        for told in (
            "Two people talk",
            "the voices are tones",
            "Talk   http://127.0.0.1:",
            "DELAY is",
        ):
            assert told in first
        assert " utterances delivered in order, 0 missing; " in shown, shown
        assert "MISSING" not in shown
        assert "CHECK FAILED" not in shown
        (killed,) = re.findall(r"(\w+) has the job, and is killed", shown)
        assert f"{killed} | is back" in lines_until(running, f"{killed} | is back")[-1]

        start = lines.index("It stays up; in another terminal:") + 1
        commands = lines[start : lines.index("From a program of your own (docs/clients.md):")]
        assert any(" lingua speak " in command for command in commands)
        typed = subprocess.run(
            ["bash", "-e", "-c", "\n".join(commands)],
            env={**environment(), "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
        )
        assert typed.returncode == 0, typed.stderr
        assert "translated  en->es  by cedar, 1 attempt" in typed.stdout
        saved = Path(typed.stdout.split("utterance-0000.wav")[0].split()[-1])
        assert (saved / "utterance-0000.wav").exists()

        # The nodes know no words, and say so instead of one of their sentences.
        talk = Talk(next(line for line in lines if line.startswith("Talk ")).split()[1])
        (result,), client = asyncio.run(talk.converse("zh", "en", spoken()))
        assert result["texts"]["source"].startswith("演示：听到了 ")
        assert result["texts"]["translated"].startswith("Demo: heard ")
        assert client.speech == {0: spoken()}

        running.send_signal(signal.SIGINT)
        assert running.wait(WITHIN_S) == 0
    assert not saved.exists()


@pytest.mark.long
def test_people_can_speak_through_the_page_meanwhile_and_it_ends_by_itself() -> None:
    with conversation(RUN_SECONDS="0") as running:
        lines = lines_until(running, "Talk   ")
        (result,), _ = asyncio.run(Talk(lines[-1].split()[1]).converse("en", "es", spoken()))
        assert result["texts"]["translated"].startswith("Demo: se oyeron ")
        assert result["nodeId"] == "cedar"
        lines += lines_until(running, "nothing starts like this")
        shown = "\n".join(lines)
        assert running.wait(WITHIN_S) == 0, shown
    assert " utterances delivered in order, 0 missing; 13 attempts; 1 node killed; " in shown
    # Off a terminal there are no codes for one, and no line is wrapped.
    assert "\x1b" not in shown
    conversation_lines = shown.partition("It stays up")[0].splitlines()
    assert max(map(cell_len, conversation_lines)) < 80


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_the_middle_of_it_ends_it_with_exit_code_130(number: signal.Signals) -> None:
    with conversation() as running:
        lines_until(running, "NODE")
        assert running.stdout is not None
        assert "Hello, nice to meet you." in running.stdout.readline()
        running.send_signal(number)
        rest = lines_until(running, "Ended before it was over")
        assert running.wait(WITHIN_S) == 130, rest
    assert "Traceback" not in "\n".join(rest)
