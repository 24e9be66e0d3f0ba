"""`lingua up` on a terminal: a live status, whole lines above it, a clean end."""

import os
import pty
import re
import signal
import subprocess
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.commands import LINGUA, WITHIN_S, becomes, environment

COLUMNS = 80


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, *args: str, **variables: str) -> None:
        self._ours, its = pty.openpty()
        termios.tcsetwinsize(its, (40, COLUMNS))
        self.process = subprocess.Popen(
            [*LINGUA, *args],
            env={**environment(**variables), "TERM": variables.get("TERM", "xterm-256color")},
            stdin=its,
            stdout=its,
            stderr=its,
            # As in a terminal: whoever runs the tests in the background has SIGINT ignored.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        os.close(its)
        self._read = b""
        self._reader = threading.Thread(target=self._follow)
        self._reader.start()

    def _follow(self) -> None:
        # The kernel reports the end of the other side as an error.
        try:
            while data := os.read(self._ours, 65536):
                self._read += data
        except OSError:
            pass
        os.close(self._ours)

    def raw(self) -> str:
        """All that was written, with the codes for the terminal."""
        return self._read.decode(errors="replace")

    def text(self) -> str:
        """All that was written, without codes; a line that was rewritten is there several times."""
        lines = self.raw().replace("\r\n", "\n").replace("\r\x1b[2K", "\n")
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", lines).replace("\r", "")

    def end(self) -> int:
        """Waits for its end."""
        code = self.process.wait(WITHIN_S)
        self._reader.join(WITHIN_S)
        return code


@contextmanager
def on_terminal(*args: str, **variables: str) -> Iterator[Terminal]:
    """The command runs; what still does at the end is killed."""
    running = Terminal(*args, **variables)
    try:
        yield running
    finally:
        running.process.kill()
        running.end()


def child_of(pid: int, command: str) -> int:
    """A child process, by a part of its command line."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return next(
        int(child)
        for child in children
        if command in Path(f"/proc/{child}/cmdline").read_text().replace("\0", " ")
    )


def test_on_a_terminal_it_shows_the_start_what_runs_a_restart_and_the_end() -> None:
    with on_terminal("up", "--demo") as up:
        assert becomes(lambda: "Ctrl-C ends everything." in up.text()), up.text()
        start, _, summary = up.text().partition(" is up, after ")
        assert re.search(r"redis +starting +\d\.\d s", start)
        assert re.search(r"gateway +waiting", start)
        assert re.search(r"demo-1 +starting", start)
        assert re.search(r"pool +ready +\d+\.\d s", start)
        assert re.search(r"\nTalk +http://127\.0\.0\.1:", summary)
        assert re.search(r"\npool +127\.0\.0\.1:\d+", summary)
        assert "  export LINGUA_POOL_ADDRESS=" in summary
        assert becomes(lambda: "| 2 nodes | 0 sessions | jobs: 0 now" in up.text()), up.text()
        node = child_of(up.process.pid, "sample-node --id demo-1")
        os.kill(node, signal.SIGKILL)
        assert becomes(lambda: "demo-1 | is back (pid " in up.text()), up.text()
        why = f"demo-1 | pid {node} ended unexpectedly: killed by SIGKILL; restarting it in 0.2 s"
        # A line of its own, in spite of the status below it.
        assert why in up.text().splitlines()
        up.process.send_signal(signal.SIGINT)
        stopping = r"stopping, \d+ s \| still running: services"
        assert becomes(lambda: re.search(stopping, up.text()) is not None), up.text()
        assert up.end() == 0
        assert up.text().endswith("Everything has ended.\n")
        # The cursor was hidden, and is there again.
        assert up.raw().rfind("\x1b[?25h") > up.raw().rfind("\x1b[?25l") >= 0


def test_a_dumb_terminal_gets_lines_without_codes() -> None:
    with on_terminal("up", "--seconds", "0.1", TERM="dumb") as up:
        assert up.end() == 0
    assert "\x1b" not in up.raw()
    assert up.text().count("Redis  embedded ") == 1
    assert "starting" not in up.text().partition("Redis  embedded ")[0]


@pytest.mark.parametrize("plain", ["", "1"], ids=["colours", "NO_COLOR"])
def test_an_error_on_a_terminal_says_what_was_wrong_and_what_to_do(plain: str) -> None:
    variables = {"LINGUA_POOL_ADDRESS": "127.0.0.1:1", "NO_COLOR": plain}
    with on_terminal("nodes", "list", **variables) as failed:
        assert failed.end() == 3
    told = failed.text()
    assert told.startswith("Error: cannot reach the pool service at 127.0.0.1:1: ")
    assert "\nHint: Is it running? Start it with 'lingua up'" in told
    assert ("\x1b[31m" in failed.raw()) is (not plain)
    assert max(map(len, told.splitlines())) <= COLUMNS
