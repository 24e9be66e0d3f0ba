"""The shell blocks of each page run as printed, in order, in one folder, as a reader types them.

Blocks with a command that cannot run in a test are left out as a whole (`blocks.ELSEWHERE`), and so
are commands that need a device (`WITHOUT_DEVICE`); test_blocks checks what all of them name.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import wave
from array import array
from pathlib import Path

import pytest

from tests.support.commands import WITHIN_S, becomes, environment

from .blocks import ROOT, blocks, lines

# These run until Ctrl-C, and say on a stream when they are ready.
READY = {
    "lingua up": r"Ctrl-C ends everything",
    "lingua sim-nodes": r"connected [1-9]",
    "lingua serve": r"listening",
    "lingua sample-node": r"connected to dispatcher",
    "lingua listen": r"Listening to room",
}
# tests/e2e/test_cli_speak.py has a microphone.
WITHOUT_DEVICE = "--mic"
# What the reader puts in: the first of a list.
PLACEHOLDERS = {
    "NODE": ("nodes list --json", "nodes", "node_id"),
    "JOB": ("jobs list --json", "jobs", "job_id"),
    "ROOM": ("rooms list --json", "rooms", "room_id"),
}
# Where the console is by default; in a test it has a free port.
CONSOLE = "http://127.0.0.1:7750"
# Files that the commands of a page must have made.
MADE = {
    "docs/running.md": ["out/utterance-0000.wav", "certs/ca.crt", "secret"],
    "docs/security.md": ["certs/gateway.crt", "client.token", "node.token"],
}

# It has most of the commands.
LONGEST = "docs/running.md"
PAGES = list(
    dict.fromkeys(str(b.page.relative_to(ROOT)) for b in blocks("bash") if not b.is_elsewhere)
)


class Terminal:
    """One reader at work: a folder, an environment, and commands that still run."""

    def __init__(self, folder: Path, *, console: bool) -> None:
        self._folder = folder
        bin_folder = str(Path(sys.executable).parent)
        self._environ = {
            **environment(**({"LINGUA_CONSOLE_LISTEN": "127.0.0.1:0"} if console else {})),
            "PATH": f"{bin_folder}:{os.environ['PATH']}",
        }
        self._console = CONSOLE
        self._running: list[_Running] = []

    def type(self, line: str) -> None:
        """Runs a command to its end, or until it is ready if it has none."""
        line = re.sub(r"\b(NODE|JOB|ROOM)\b", lambda found: self._first(found[1]), line)
        line = line.replace(CONSOLE, self._console)
        ready = next((said for start, said in READY.items() if line.startswith(start)), None)
        if ready is None:
            self._run(line)
            return
        running = _Running(line, self._folder, self._environ)
        self._running.append(running)
        assert becomes(lambda: running.has_said(ready) or running.ended), running.output
        assert running.has_said(ready), running.output
        # As the reader of what `lingua up` prints would.
        for name, value in re.findall(r"export (\w+)=(\S+)", running.output):
            self._environ.setdefault(name, value)
        if found := re.search(r"^Console (\S+)/$", running.output, re.MULTILINE):
            self._console = found[1]
        if found := re.search(r"^Redis .* at (\S+),", running.output, re.MULTILINE):
            self._environ.setdefault("LINGUA_REDIS_URL", found[1])

    def close(self) -> None:
        """Ctrl-C for all that still runs, the last one first; each must end well."""
        codes = [running.end() for running in reversed(self._running)]
        assert codes == [0] * len(codes), [running.output for running in self._running]

    def _run(self, line: str) -> str:
        dump = self._folder / ".environment"
        ended = subprocess.run(
            ["bash", "-e", "-c", f"{line}\nenv -0 >{dump}"],
            cwd=self._folder,
            env=self._environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
        )
        assert ended.returncode == 0, f"{line}\n{ended.stdout}{ended.stderr}"
        variables = dump.read_text().split("\0")[:-1]
        self._environ = dict(each.split("=", 1) for each in variables)
        return ended.stdout

    def _first(self, placeholder: str) -> str:
        command, rows, name = PLACEHOLDERS[placeholder]
        return str(json.loads(self._run(f"lingua {command}"))[rows][0][name])


class _Running:
    """A command that runs until Ctrl-C."""

    def __init__(self, line: str, folder: Path, environ: dict[str, str]) -> None:
        self.output = ""
        # `exec`, so that the signal reaches the command itself.
        self._process = subprocess.Popen(
            ["bash", "-c", f"exec {line}"],
            cwd=folder,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def has_said(self, pattern: str) -> bool:
        return re.search(pattern, self.output) is not None

    def end(self) -> int:
        self._process.send_signal(signal.SIGINT)
        try:
            return self._process.wait(WITHIN_S)
        finally:
            self._process.kill()
            self._reader.join(WITHIN_S)
            assert self._process.stdout is not None
            self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.output += line


def talk(folder: Path) -> None:
    """The file that the examples speak."""
    with wave.open(str(folder / "talk.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16000)
        # Not silence, in which the sample nodes hear no speech.
        file.writeframes(array("h", ([3000] * 40 + [-3000] * 40) * 200).tobytes())


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=pytest.mark.long) if page == LONGEST else page for page in PAGES],
)
def test_the_commands_of_a_page_run_in_order(page: str, tmp_path: Path) -> None:
    if page == "docs/console.md" and shutil.which("curl") is None:
        pytest.skip("needs curl: apt-get install --no-install-recommends curl")
    talk(tmp_path)
    terminal = Terminal(tmp_path, console=page == "docs/console.md")
    try:
        for block in blocks("bash"):
            if str(block.page.relative_to(ROOT)) == page and not block.is_elsewhere:
                for line in lines(block.code):
                    if WITHOUT_DEVICE not in line.split():
                        terminal.type(line)
    finally:
        terminal.close()
    assert [made for made in MADE.get(page, []) if not (tmp_path / made).exists()] == []
