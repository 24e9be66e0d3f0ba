"""`lingua top` against a scheduler that runs."""

import json
import os
import pty
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest

from tests.support.commands import LINGUA, WITHIN_S, environment, lingua
from tests.support.scheduler import Scheduler

WIDTH = 80


@pytest.fixture(scope="module")
def scheduler(redis_url: str) -> Iterator[Scheduler]:
    """A scheduler in one process, with one node."""
    with Scheduler(redis_url=redis_url, split=False) as made:
        made.add_nodes([made.dispatchers[0].address])
        yield made


def test_it_prints_one_overview_if_it_is_asked_to(scheduler: Scheduler) -> None:
    shown = lingua("top", "--once", "--pool", scheduler.pools[0].address)
    assert shown.returncode == 0, shown.stderr
    assert "1 ready" in shown.stdout
    assert "jobs/s" in shown.stdout
    assert "least room (speech)" in shown.stdout
    assert "\x1b" not in shown.stdout
    assert max(len(line) for line in shown.stdout.splitlines()) <= WIDTH


def test_it_prints_the_document_of_the_console(scheduler: Scheduler) -> None:
    shown = lingua("top", "--json", "--pool", scheduler.pools[0].address)
    assert shown.returncode == 0, shown.stderr
    overview = json.loads(shown.stdout)
    assert overview["totals"]["nodes"]["ready"] == 1
    assert overview["problems"] == {}
    assert overview["rates"]["window_s"] == 60
    assert overview["instances"]["serving"] >= 1


def test_ctrl_c_ends_it_cleanly(scheduler: Scheduler) -> None:
    ours, its = pty.openpty()
    process = subprocess.Popen(
        [*LINGUA, "top", "--pool", scheduler.pools[0].address],
        env={**environment(), "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"},
        stdin=its,
        stdout=its,
        stderr=subprocess.PIPE,
        text=True,
        # As in a terminal: whoever runs the tests in the background has SIGINT ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    os.close(its)
    try:
        drawn = _read_until(ours, "1 ready")
        assert "\x1b[" in drawn
        process.send_signal(signal.SIGINT)
        # The rest has to be read, or the command could not write its last bytes.
        _read_to_end(ours)
        _, errors = process.communicate(timeout=WITHIN_S)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert process.returncode == 0
    assert errors == ""


def _read_until(terminal: int, text: str) -> str:
    deadline = time.monotonic() + WITHIN_S
    drawn = ""
    while text not in drawn:
        assert time.monotonic() < deadline, drawn
        drawn += os.read(terminal, 65536).decode(errors="replace")
    return drawn


def _read_to_end(terminal: int) -> None:
    while True:
        try:
            if not os.read(terminal, 65536):
                return
        except OSError:
            # The other side is closed.
            return
