"""Timers fire once, in order, never early; against a plain dict on a virtual clock."""

import asyncio
import random
import weakref
from collections.abc import Callable

import pytest
import uvloop

from lingua_scheduler.services.runtime.timers import Timers, now_ms


class VirtualAlarm:
    def __init__(self, at_ms: float, callback: Callable[[], None]) -> None:
        self.at_ms = at_ms
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class VirtualClock:
    """A clock that a test moves, and that calls what is due."""

    def __init__(self) -> None:
        self.now = 0.0
        self.alarms: list[VirtualAlarm] = []
        self.set = 0

    def __call__(self) -> float:
        return self.now

    def call_at(self, at_ms: float, callback: Callable[[], None]) -> VirtualAlarm:
        self.set += 1
        alarm = VirtualAlarm(at_ms, callback)
        self.alarms.append(alarm)
        return alarm

    def pending(self) -> list[VirtualAlarm]:
        self.alarms = [alarm for alarm in self.alarms if not alarm.cancelled]
        return self.alarms

    def advance(self, to_ms: float) -> None:
        while due := [alarm for alarm in self.pending() if alarm.at_ms <= to_ms]:
            first = min(due, key=lambda alarm: alarm.at_ms)
            self.alarms.remove(first)
            self.now = max(self.now, first.at_ms)
            first.callback()
        self.now = max(self.now, to_ms)


def timers_on(
    clock: VirtualClock, on_due: Callable[[str, str], None] | None = None
) -> tuple[Timers[str, str], list[tuple[float, str, str]]]:
    fired: list[tuple[float, str, str]] = []

    def note(owner: str, key: str) -> None:
        fired.append((clock.now, owner, key))
        if on_due is not None:
            on_due(owner, key)

    return Timers(on_due=note, clock=clock, call_at=clock.call_at), fired


class Session:
    """An owner that can be seen to go."""


@pytest.mark.parametrize("how", ["cleared", "all cleared", "moved earlier and fired"])
def test_an_owner_whose_timers_are_over_is_not_kept(how: str) -> None:
    clock = VirtualClock()
    timers = Timers[Session, str](
        on_due=lambda _owner, _key: None, clock=clock, call_at=clock.call_at
    )
    owner = Session()
    gone = weakref.ref(owner)
    timers.set(owner, "late", 1000)
    match how:
        case "cleared":
            timers.clear(owner, "late")
        case "all cleared":
            timers.clear_all(owner)
        case _:
            timers.set(owner, "late", 10)
            clock.advance(20)
    del owner
    assert gone() is None


def test_timers_fire_by_time_and_then_in_the_order_they_were_set() -> None:
    clock = VirtualClock()
    timers, fired = timers_on(clock)
    timers.set("a", "late", 30)
    timers.set("b", "early", 10)
    timers.set("c", "early", 10)
    clock.advance(9.9)
    assert fired == []
    clock.advance(100)
    assert fired == [(10, "b", "early"), (10, "c", "early"), (30, "a", "late")]
    assert len(timers) == 0


def test_a_timer_that_is_set_again_moves_and_a_cleared_one_never_fires() -> None:
    clock = VirtualClock()
    timers, fired = timers_on(clock)
    timers.set("a", "ack", 10)
    timers.set("a", "ack", 50)
    timers.set("b", "ack", 20)
    timers.set("b", "wait", 20)
    timers.set("c", "ack", 20)
    timers.clear("c", "ack")
    timers.clear("c", "unknown")
    timers.clear_all("b")
    clock.advance(100)
    assert fired == [(50, "a", "ack")]


def test_a_callback_may_clear_and_move_those_that_are_due_with_it() -> None:
    clock = VirtualClock()

    def on_due(owner: str, key: str) -> None:
        if (owner, key) == ("a", "x"):
            timers.clear_all("b")
            timers.set("c", "x", 40)
            timers.set("a", "again", 0)

    timers, fired = timers_on(clock, on_due)
    for owner in ("a", "b", "c"):
        timers.set(owner, "x", 10)
    clock.advance(20)
    assert fired == [(10, "a", "x"), (10, "a", "again")]
    clock.advance(50)
    assert fired[2:] == [(40, "c", "x")]


def test_a_callback_that_fails_stops_no_other_timer(caplog: pytest.LogCaptureFixture) -> None:
    clock = VirtualClock()

    def on_due(owner: str, key: str) -> None:
        if owner == "a":
            raise ValueError("broken")

    timers, fired = timers_on(clock, on_due)
    timers.set("a", "x", 10)
    timers.set("b", "x", 10)
    clock.advance(10)
    assert [entry[1] for entry in fired] == ["a", "b"]
    assert "timer callback failed" in caplog.text


def test_a_timer_that_is_moved_often_has_one_entry_and_fires_at_its_last_time() -> None:
    clock = VirtualClock()
    timers, fired = timers_on(clock)
    timers.set("a", "pause", 10)
    timers.set("b", "pause", 60)
    for at in range(20, 70, 10):
        timers.set("a", "pause", at)
    assert len(timers._heap) == 2
    clock.advance(59)
    assert fired == []
    timers.set("a", "pause", 61)
    timers.set("a", "pause", 60)
    clock.advance(100)
    assert fired == [(60, "b", "pause"), (60, "a", "pause")]


def test_memory_is_bounded_by_the_live_timers_however_often_they_move() -> None:
    clock = VirtualClock()
    timers, fired = timers_on(clock)
    for turn in range(200):
        for job in range(100):
            timers.set(f"j{job}", "ack", 1000 + turn)
            timers.set(f"j{job}", "job", 2000 + turn)
            timers.clear(f"j{job}", "job")
    assert len(timers) == 100
    assert len(timers._heap) <= 2 * 100 + 64 + 1
    assert len(clock.pending()) == 1
    clock.advance(5000)
    assert len(fired) == 100
    assert not timers._heap
    assert not timers._live


def test_ten_thousand_jobs_with_several_timers_have_one_alarm() -> None:
    clock = VirtualClock()
    timers, fired = timers_on(clock)
    for job in range(10_000):
        for number, key in enumerate(("ack", "job", "hedge")):
            timers.set(f"j{job}", key, 100 + job + number)
    assert len(timers) == 30_000
    assert len(clock.pending()) == 1
    clock.advance(20_000)
    assert len(fired) == 30_000
    assert fired == sorted(fired, key=lambda entry: entry[0])


@pytest.mark.parametrize("seed", range(30))
def test_random_changes_fire_what_a_plain_dict_would(seed: int) -> None:
    rng = random.Random(seed)
    clock = VirtualClock()
    timers, fired = timers_on(clock)
    model: dict[tuple[str, str], tuple[float, int]] = {}
    expected: list[tuple[float, str, str]] = []
    for step in range(2000):
        owner, key = f"j{rng.randrange(20)}", rng.choice(("ack", "job", "wait"))
        match rng.randrange(8):
            case 0 | 1 | 2 | 3:
                at = clock.now + rng.randrange(1, 200)
                timers.set(owner, key, at)
                model[owner, key] = (at, step)
            case 4:
                timers.clear(owner, key)
                model.pop((owner, key), None)
            case 5:
                timers.clear_all(owner)
                model = {name: value for name, value in model.items() if name[0] != owner}
            case _:
                to = clock.now + rng.randrange(60)
                due = sorted((value, name) for name, value in model.items() if value[0] <= to)
                for (at, _), name in due:
                    expected.append((at, *name))
                    del model[name]
                clock.advance(to)
        assert fired == expected
        assert len(timers) == len(model)
        assert len(timers._heap) <= 2 * len(model) + 65


async def test_on_an_event_loop_a_timer_fires_at_its_time() -> None:
    loop = asyncio.get_running_loop()
    fired: asyncio.Future[float] = loop.create_future()

    def on_due(owner: str, key: str) -> None:
        fired.set_result(loop.time() * 1000)

    timers = Timers(on_due=on_due, clock=lambda: loop.time() * 1000)
    at = loop.time() * 1000 + 20
    timers.set("a", "x", at)
    assert await asyncio.wait_for(fired, 5) >= at - 1
    timers.set("a", "x", at + 10_000)
    timers.close()
    assert len(timers) == 0


def test_the_alarm_does_not_ring_again_and_again_because_uvloop_rounds_times() -> None:
    rings = 0

    def clock() -> float:
        nonlocal rings
        rings += 1
        return now_ms()

    async def fire(count: int) -> None:
        fired = asyncio.Event()
        timers: Timers[int, str] = Timers(on_due=lambda *_: fired.set(), clock=clock)
        for each in range(count):
            fired.clear()
            timers.set(each, "only", now_ms() + 2 + each / count)
            await fired.wait()

    uvloop.run(fire(40))

    # Several for each timer if rounding is ignored. A few more than one may be early on a busy
    # machine, because uvloop's clock stands still during an iteration of the loop.
    assert 40 <= rings < 60
