"""One timer for many deadlines, on a loop whose clock the test moves."""

import math
from collections.abc import Callable
from typing import Any

from lingua_scheduler.services.runtime.deadlines import (
    SLACK_S,
    STALL_GRACE_S,
    STALL_S,
    DeadlineTimer,
)


class Handle:
    """A timer of the loop."""

    def __init__(self, due: float, call: Callable[[], None]) -> None:
        self.due = due
        self.call = call
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Loop:
    """A loop with nothing but timers; `lag` is how late it serves them."""

    def __init__(self) -> None:
        self.now = 0.0
        self.handles: list[Handle] = []

    def time(self) -> float:
        return self.now

    def call_at(self, due: float, call: Callable[..., None], *args: Any) -> Handle:
        self.handles.append(Handle(due, lambda: call(*args)))
        return self.handles[-1]

    def run_one(self, lag: float = 0.0) -> None:
        (handle,) = (each for each in self.handles if not each.cancelled)
        self.handles.clear()
        self.now = handle.due + lag
        handle.call()


class Deadlines:
    """Deadlines, and those that were expired, with the time."""

    def __init__(self, loop: Loop, *waiting: float) -> None:
        self._loop = loop
        self.waiting = list(waiting)
        self.expired: list[tuple[float, float]] = []

    def expire(self, over: float) -> float:
        for due in [each for each in self.waiting if each <= over]:
            self.waiting.remove(due)
            self.expired.append((due, self._loop.now))
        return min(self.waiting, default=math.inf)


def armed(*waiting: float) -> tuple[Loop, Deadlines, DeadlineTimer]:
    loop = Loop()
    deadlines = Deadlines(loop, *waiting)
    timer = DeadlineTimer(deadlines.expire)
    timer.arm(loop, waiting[0])  # type: ignore[arg-type]
    return loop, deadlines, timer


def test_deadlines_expire_on_time_and_close_ones_together() -> None:
    loop, deadlines, timer = armed(1.0, 1.0 + SLACK_S / 2, 2.0)
    loop.run_one()
    assert deadlines.expired == [(1.0, 1.0), (1.0 + SLACK_S / 2, 1.0)]
    loop.run_one()
    assert deadlines.expired[2:] == [(2.0, 2.0)]
    assert not timer.is_armed
    assert loop.handles == []


def test_after_a_stall_nothing_expires_before_answers_could_be_read() -> None:
    loop, deadlines, _ = armed(1.0, 1.2, 5.0)
    loop.run_one(lag=0.5)
    assert deadlines.expired == []
    deadlines.waiting.remove(1.2)  # its answer was in the socket
    loop.run_one()
    assert deadlines.expired == [(1.0, 1.5 + STALL_GRACE_S)]
    assert loop.handles[0].due == 5.0


def test_a_second_stall_in_a_row_spares_only_what_was_not_spared_before() -> None:
    loop, deadlines, _ = armed(1.0, 1.8, 5.0)
    loop.run_one(lag=0.5)
    loop.run_one(lag=2 * STALL_S + 0.5)
    assert [due for due, _ in deadlines.expired] == [1.0]
    loop.run_one()
    assert [due for due, _ in deadlines.expired] == [1.0, 1.8]


def test_a_timer_that_is_armed_keeps_its_first_deadline_and_can_be_disarmed() -> None:
    loop, _, timer = armed(1.0)
    timer.arm(loop, 0.5)  # type: ignore[arg-type]
    assert [handle.due for handle in loop.handles] == [1.0]
    timer.disarm()
    assert loop.handles[0].cancelled
    assert not timer.is_armed
