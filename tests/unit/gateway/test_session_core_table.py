"""The table of a session's core: every event in every phase does what it says, and no more."""

from collections.abc import Callable

import pytest

from lingua_scheduler.services.session_gateway.session import core as session_core
from lingua_scheduler.services.session_gateway.session.core import SessionCore, SessionPhase
from lingua_scheduler.services.session_gateway.session.effects import (
    DEADLINE,
    FRAGMENT,
    GOODBYE,
    HANGOVER,
    IDLE,
    PAUSE,
    RECORD,
    TimerKey,
)
from tests.unit.gateway.desk import BA, DOWN, HELD_AUDIO_NEEDED, TAKEN_OVER, Desk

# Only sessions in rooms are in the other phase: test_speaking_core.py.
PHASES = tuple(phase for phase in SessionPhase if phase is not SessionPhase.LEFT)
LEFT = "end SESSION_TAKEN_OVER"


def table() -> dict[tuple[str, SessionPhase], str]:
    """The cells of the table in the core's docstring; a row's name may span several lines."""
    lines = (session_core.__doc__ or "").splitlines()
    [head] = [at for at, line in enumerate(lines) if line.split() == [p.name for p in PHASES]]
    columns = [lines[head].index(phase.name) for phase in PHASES] + [200]
    cells: dict[tuple[str, SessionPhase], str] = {}
    event = ""
    for line in lines[head + 1 :]:
        if not line.strip():
            break
        name = line[: columns[0]]
        event = f"{event} {name.strip()}" if name.startswith(" " * 6) else name.strip()
        for phase, start, end in zip(PHASES, columns, columns[1:], strict=False):
            if text := line[start:end].strip():
                cells[event, phase] = text
    return cells


# ---- how to get to a phase ----


def gathering() -> Desk:
    return Desk().say(500)


def cut() -> Desk:
    """Utterance 0 is being recorded."""
    return Desk().cut()


def unwritten() -> Desk:
    """Recording it has failed."""
    return cut().record_failed()


def submitted() -> Desk:
    return Desk().submit()


def waiting() -> Desk:
    """The job waits to be retried."""
    return submitted().failed(0, DOWN)


def accepted() -> Desk:
    return submitted().accepted()


def delivered() -> Desk:
    return submitted().delivered()


def one_of_two() -> Desk:
    """The first of two utterances is delivered."""
    return Desk().submit().submit().delivered(0)


def closing(before: Callable[[], Desk]) -> Callable[[], Desk]:
    return lambda: before().close()


def closed() -> Desk:
    """All results are delivered, and none is confirmed."""
    return Desk().submit().submit().delivered(0).delivered(1).close()


def closed_missing() -> Desk:
    return submitted().failed(0).close()


def closed_unwritten() -> Desk:
    """The deadline passed before the cut was recorded."""
    return cut().close().silence(30_000)


BEFORE: tuple[Callable[[], Desk], ...] = (
    *(Desk, gathering, cut, unwritten, submitted, waiting, accepted, delivered, one_of_two),
    *(closing(each) for each in (cut, unwritten, submitted, waiting, accepted, one_of_two)),
    *(closed, closed_missing, closed_unwritten),
)

# ---- events ----

Step = Callable[[Desk], Desk]
EVENTS: dict[str, list[Step]] = {
    "chunk": [Desk.say, lambda desk: desk.say(seq=0), lambda desk: desk.say(seq=99)],
    "playback": [lambda desk: desk.playback(True), lambda desk: desk.playback(False)],
    "close": [Desk.close],
    "seen": [lambda desk: desk.seen(0), lambda desk: desk.seen(1), lambda desk: desk.seen(99)],
    "recorded": [Desk.recorded],
    "record failed": [Desk.record_failed],
    "lost": [Desk.lost],
    "accepted": [Desk.accepted],
    "retrying": [Desk.retrying],
    "partial": [Desk.partial],
    "delivered": [Desk.delivered, lambda desk: desk.delivered(1)],
    "failed, retry": [lambda desk: desk.failed(0, DOWN)],
    "failed, audio": [lambda desk: desk.failed(0, HELD_AUDIO_NEEDED)],
    "failed, for good": [Desk.failed],
    "failed, lost": [lambda desk: desk.failed(0, TAKEN_OVER)],
    "left": [Desk.left],
}


def fires(*keys: TimerKey) -> list[Step]:
    """Fires timers much later, whether they are set or not."""

    def step(desk: Desk) -> Desk:
        desk.now += 10_000_000
        for key in keys:
            desk.timer(key)
        return desk

    return [step]


EVENTS |= {
    "timer pause, hangover, fragment": fires(PAUSE, HANGOVER, FRAGMENT),
    "timer record": fires(RECORD),
    "timer retry": fires(("retry", 0)),
    "timer deadline": fires(DEADLINE),
    "timer idle": fires(IDLE),
    "timer goodbye": fires(GOODBYE),
}

# The state before, the event, the expected effects, the phase after it.
Case = tuple[Callable[[], Desk], Step, list[str], SessionPhase]


def after(ms: float, *steps: Step) -> Step:
    """Does the steps, and then advances the clock."""

    def run(desk: Desk) -> Desk:
        for step in steps:
            step(desk)
        return desk.silence(ms)

    return run


def nothing(event: str, phase: SessionPhase, *before: Callable[[], Desk]) -> list[Case]:
    """Cases in which no form of an event does anything."""
    return [(each, step, [], phase) for each in before for step in EVENTS[event]]


def both(
    before: Callable[[], Desk], step: Step, wanted: list[str], closes: str = ""
) -> tuple[list[Case], list[Case]]:
    """The same case while open and while closing; `closes` is added if it was the last."""
    last = SessionPhase.CLOSED if closes else SessionPhase.CLOSING
    more = [closes] if closes else []
    return (
        [(before, step, wanted, SessionPhase.OPEN)],
        [(closing(before), step, wanted + more, last)],
    )


O, C, E, OVER = PHASES  # noqa: E741
REFUSED = ["send error INVALID_MESSAGE"]
LOST = ["send error SESSION_TAKEN_OVER"]
CELLS: dict[tuple[str, SessionPhase], tuple[str, list[Case]]] = {
    ("chunk", O): ("take, skip or refuse", [
        (Desk, after(3150, Desk.say), ["record 0"], O),
        (gathering, lambda desk: desk.say(seq=0), [], O),
        (gathering, lambda desk: desk.say(seq=2), ["send error BAD_AUDIO"], O),
        (gathering, lambda desk: desk.say(data=b"odd"), ["send error BAD_AUDIO"], O),
    ]),
    ("chunk", C): ("refuse", [(closing(submitted), Desk.say, REFUSED, C)]),
    ("chunk", E): ("refuse", [(closed, Desk.say, REFUSED, E)]),
    ("playback", O): ("pass on", [
        (gathering, after(9000, lambda desk: desk.playback(True)), [], O),
        (lambda: gathering().playback(True).silence(9000),
         after(3150, lambda desk: desk.playback(False)), ["record 0"], O),
    ]),
    ("playback", C): ("-", nothing("playback", C, closing(submitted))),
    ("playback", E): ("-", nothing("playback", E, closed)),
    ("close", O): ("cut all", [
        (Desk, Desk.close, ["send closed 0 0", "end done"], OVER),
        (gathering, Desk.close, ["record 0"], C),
        (lambda: Desk().say(100, BA).silence(3000), Desk.close, ["record 0"], C),
        (submitted, Desk.close, [], C),
        (delivered, Desk.close, ["send closed 1 0"], E),
    ]),
    ("close", C): ("-", nothing("close", C, closing(submitted), closing(cut))),
    ("close", E): ("-", nothing("close", E, closed)),
    ("seen", O): ("confirm results", [(delivered, lambda desk: desk.seen(1), ["taken 0"], O)]),
    ("seen", C): ("confirm results", [
        (closing(one_of_two), lambda desk: desk.seen(1), ["taken 0"], C),
    ]),
    ("seen", E): ("confirm, all: end", [
        (closed, lambda desk: desk.seen(1), ["taken 0"], E),
        (closed, lambda desk: desk.seen(2), ["taken 0", "taken 1", "end done"], OVER),
        (closed_missing, lambda desk: desk.seen(1), ["end done"], OVER),
    ]),
    ("recorded", E): ("-", nothing("recorded", E, closed_unwritten)),
    ("record failed", O): ("record later", [
        (cut, Desk.record_failed, ["send error SCHEDULER_DEPENDENCY_DOWN"], O),
        (unwritten, after(200), ["record 0"], O),
    ]),
    ("record failed", C): ("record later", [
        (closing(cut), Desk.record_failed, ["send error SCHEDULER_DEPENDENCY_DOWN"], C),
        (closing(unwritten), after(200), ["record 0"], C),
    ]),
    ("record failed", E): ("-", [(closed_unwritten, after(1000, Desk.record_failed), [], E)]),
    ("lost", O): ("end", [(submitted, Desk.lost, [*LOST, "leave 0", LEFT], OVER)]),
    ("lost", C): ("end", [(closing(submitted), Desk.lost, [*LOST, "leave 0", LEFT], OVER)]),
    ("lost", E): ("end", [(closed, Desk.lost, [*LOST, "leave 0 1", LEFT], OVER)]),
    ("failed, lost", O): ("end", [
        (each, step, [*LOST, jobs, LEFT], OVER)
        for each, jobs in ((submitted, "leave 0"), (delivered, "leave 0"), (cut, "leave"))
        for step in EVENTS["failed, lost"]
    ]),
    ("failed, lost", C): ("end", [
        (closing(submitted), step, [*LOST, "leave 0", LEFT], OVER)
        for step in EVENTS["failed, lost"]
    ]),
    ("failed, lost", E): ("end", [
        (closed, step, [*LOST, "leave 0 1", LEFT], OVER) for step in EVENTS["failed, lost"]
    ]),
    ("delivered", O): ("release in order", [
        (submitted, Desk.delivered, ["send result 0", "send ack 1"], O),
        (lambda: submitted().submit(), lambda desk: desk.delivered(1), [], O),
        (lambda: submitted().submit().delivered(1), Desk.delivered,
         ["send result 0", "send result 1", "send ack 2"], O),
    ]),
    ("delivered", C): ("release, all: closed", [
        (closing(lambda: submitted().submit()), Desk.delivered,
         ["send result 0", "send ack 1"], C),
        (closing(accepted), Desk.delivered, ["send result 0", "send closed 1 0"], E),
    ]),
    ("delivered", E): ("late", [
        (closed_missing, Desk.delivered, ["taken 0"], E),
        (closed, Desk.delivered, [], E),
    ]),
    ("failed, retry", E): ("-", nothing("failed, retry", E, closed, closed_missing)),
    ("failed, audio", E): ("-", nothing("failed, audio", E, closed, closed_missing)),
    ("failed, for good", E): ("-", nothing("failed, for good", E, closed, closed_missing)),
    ("left", O): ("leave", [(one_of_two, Desk.left, ["leave 0 1", "end left"], OVER)]),
    ("left", C): ("leave", [
        (closing(one_of_two), Desk.left, ["leave 0 1", "end left"], OVER),
    ]),
    ("left", E): ("leave", [(closed, Desk.left, ["leave 0 1", "end left"], OVER)]),
    ("timer pause, hangover, fragment", O): ("see gatherer", [
        (gathering, after(3150), ["record 0"], O),
        (lambda: Desk().say(100), after(3000), [], O),
        (lambda: Desk().say(100), after(13_000), ["record 0"], O),
    ]),
    ("timer idle", O): ("close", [
        (Desk, after(1_800_000),
         ["send error DEADLINE_EXCEEDED", "send closed 0 0", "end done"], OVER),
    ]),
    ("timer goodbye", E): ("end", [(closed, after(2000), ["leave 0 1", "end left"], OVER)]),
}  # fmt: skip

for _event, _texts, _before, _step, _wanted, _closes in (
    ("recorded", "submit", cut, Desk.recorded, ["send finalized 0", "submit 0"], ""),
    ("accepted", "acknowledge", submitted, Desk.accepted, ["send accepted 0", "send ack 1"], ""),
    ("retrying", "notify", submitted, Desk.retrying, ["send retrying 0"], ""),
    ("partial", "notify", submitted, Desk.partial, ["send partial 0"], ""),
    ("failed, retry", "submit later", submitted,
     after(100, lambda desk: desk.failed(0, DOWN)), ["send retrying 0", "submit 0"], ""),
    ("failed, audio", "bring held audio", submitted,
     lambda desk: desk.failed(0, HELD_AUDIO_NEEDED), ["send retrying 0", "submit 0"], ""),
    ("failed, for good", "missing|missing, all: closed", submitted,
     Desk.failed, ["send missing 0", "send ack 1"], "send closed 0 1"),
    ("timer record", "record", unwritten, after(200), ["record 0"], ""),
    ("timer retry", "submit", waiting, after(100), ["submit 0"], ""),
    ("timer deadline", "missing|missing, all: closed", accepted, after(30_000),
     ["cancel 0", "send missing 0"], "send closed 0 1"),
):  # fmt: skip
    _text_open, _, _text_closing = _texts.partition("|")
    _open, _closing = both(_before, _step, _wanted, _closes)
    CELLS[_event, O] = (_text_open, _open)
    CELLS[_event, C] = (_text_closing or _text_open, _closing)

for _event in (
    *("accepted", "retrying", "partial", "timer record", "timer retry", "timer deadline"),
    *("timer idle", "timer pause, hangover, fragment"),
):
    CELLS[_event, E] = ("-", nothing(_event, E, closed, closed_missing, closed_unwritten))
for _event in ("timer idle", "timer pause, hangover, fragment"):
    CELLS[_event, C] = ("-", nothing(_event, C, closing(submitted), closing(accepted)))
for _phase, _early in ((O, submitted), (C, closing(submitted))):
    CELLS["timer goodbye", _phase] = ("-", nothing("timer goodbye", _phase, _early))
CELLS |= {(event, OVER): ("-", []) for event in EVENTS}


def test_the_table_names_every_event_of_the_core_and_every_cell_is_tried() -> None:
    assert {cell: text for cell, (text, _) in CELLS.items()} == table()
    assert set(CELLS) == {(event, phase) for event in EVENTS for phase in PHASES}
    events = {name for name in vars(SessionCore) if name.startswith("on_")}
    assert events == {
        "on_accepted", "on_chunk", "on_close", "on_delivered", "on_failed", "on_left", "on_lost",
        "on_partial", "on_playback", "on_publish_failed", "on_published", "on_record_failed",
        "on_recorded", "on_retrying", "on_seen", "on_timer",
    }  # fmt: skip


@pytest.mark.parametrize(("event", "phase"), [cell for cell in CELLS if CELLS[cell][1]])
def test_every_event_in_every_phase_does_what_the_table_says(
    event: str, phase: SessionPhase
) -> None:
    for before, step, wanted, phase_after in CELLS[event, phase][1]:
        desk = before()
        assert desk.core.phase is phase
        desk.told()

        step(desk)

        assert (desk.told(), desk.core.phase) == (wanted, phase_after)


@pytest.mark.parametrize("event", EVENTS)
def test_nothing_happens_after_the_end(event: str) -> None:
    for before in BEFORE:
        for step in EVENTS[event]:
            desk = before().left()
            assert desk.core.phase is OVER
            assert desk.timers == {}
            desk.effects.clear()

            step(desk)

            assert desk.effects == []


@pytest.mark.parametrize("before", BEFORE)
def test_a_session_can_be_left_and_lost_at_any_time(before: Callable[[], Desk]) -> None:
    for step, end in ((Desk.left, "end left"), (Desk.lost, LEFT)):
        desk = step(before())

        assert desk.core.phase is OVER
        assert desk.told()[-1] == end
        assert desk.timers == {}
