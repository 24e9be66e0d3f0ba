"""The live status of `lingua up`, with a clock of the test's own."""

import io
from collections.abc import Sequence

import pytest
from rich.cells import cell_len
from rich.console import Console, Group

from lingua_scheduler.cli.views.up_status import Numbers, Process, UpStatus

PARTS = ("redis", "pool", "dispatcher", "gateway", "demo-1", "console")


class Shown:
    """A status, and what it shows at a time."""

    def __init__(self, width: int = 80, parts: Sequence[str] = PARTS) -> None:
        self.now_s = 100.0
        self._console = Console(file=io.StringIO(), width=width)
        self.status = UpStatus(self._console, parts, clock=lambda: self.now_s)

    def lines(self) -> list[str]:
        with self._console.capture() as captured:
            self._console.print(Group(self.status))
        return captured.get().splitlines()


def test_parts_wait_for_redis_then_start_side_by_side_then_are_ready() -> None:
    shown = Shown()
    shown.now_s += 1
    first, second, *_ = shown.lines()
    assert first.split()[-4:] == ["redis", "starting", "1.0", "s"]
    assert second.split() == ["pool", "waiting"]
    shown.status.ready("redis")
    shown.now_s += 2
    shown.status.ready("pool")
    shown.now_s += 1
    redis, pool, dispatcher, *_ = shown.lines()
    assert redis.split() == ["redis", "ready", "1.0", "s"]
    assert pool.split() == ["pool", "ready", "2.0", "s"]
    assert dispatcher.split()[-4:] == ["dispatcher", "starting", "3.0", "s"]


@pytest.mark.parametrize("width", [40, 60, 80])
def test_then_one_line_tells_what_goes_on(width: int) -> None:
    shown = Shown(width)
    shown.now_s += 4
    running = {"services": True, "demo-1": False}
    processes = [Process(name, lambda name=name: running[name]) for name in running]
    assert shown.status.up(processes) == 4.0
    shown.now_s += 65
    (line,) = shown.lines()
    assert line.startswith("up 65s | demo-1 restarting")
    running["demo-1"] = True
    shown.status.tell(Numbers(nodes=2, sessions=1, jobs=3, waiting=1, done=40, failed=2))
    (line,) = shown.lines()
    assert cell_len(line) <= width
    whole = "up 65s | 2 nodes | 1 session | jobs: 3 now, 40 done, 1 waiting, 2 failed | Ctrl-C ends"
    assert whole.startswith(line.rstrip("…"))


def test_the_end_names_what_still_runs() -> None:
    shown = Shown()
    running = {"services": True, "demo-1": False}
    shown.status.up([Process(name, lambda name=name: running[name]) for name in running])
    shown.status.stop()
    shown.now_s += 3
    shown.status.stop()
    assert shown.lines() == ["stopping, 3 s | still running: services | Ctrl-C again kills at once"]
