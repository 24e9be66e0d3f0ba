"""The gatherer's table: every event in every phase does what the table says, and no more."""

from collections.abc import Callable

import pytest

from lingua_scheduler.services.session_gateway.session import gatherer
from lingua_scheduler.services.session_gateway.session.effects import (
    FRAGMENT,
    HANGOVER,
    PAUSE,
    TimerKey,
)
from lingua_scheduler.services.session_gateway.session.speech import Direction
from tests.unit.gateway.rig import (
    AB,
    BA,
    Rig,
    ended,
    fragment,
    full,
    gathering,
    idle,
    other_fragment,
    paused,
    short,
)

PHASES = ("IDLE", "GATHERING", "FULL", "HANGOVER")


def table() -> dict[tuple[str, str], str]:
    """The cells of the table in the gatherer's docstring; a cell may span several lines."""
    lines = (gatherer.__doc__ or "").splitlines()
    [head] = [at for at, line in enumerate(lines) if tuple(line.split()) == PHASES]
    columns = [lines[head].index(phase) for phase in PHASES] + [200]
    cells: dict[tuple[str, str], str] = {}
    event = ""
    for line in lines[head + 1 :]:
        if not line.strip():
            break
        # A continuation line has part of a cell, or the rest of an event's name.
        event = line[: columns[0]].strip() or event
        for phase, start, end in zip(PHASES, columns, columns[1:], strict=False):
            before = cells.get((event, phase), "")
            joined = f"{before} {line[start:end].strip()}".strip()
            cells[event, phase] = joined.replace("frag- ment", "fragment")
    return cells


Step = Callable[[Rig], Rig]
# What was before; what comes; the cuts that it makes; the timers after it; the cuts at a close.
Case = tuple[Callable[[], Rig], Step, list[str], set[str], list[str]]
_P, _H, _F = {"pause"}, {"hangover"}, {"fragment"}
_NO: list[str] = []


def chunk(
    ms: float = 100, direction: Direction = AB, *, final: bool = False, size: int = 1
) -> Step:
    return lambda rig: rig.say(ms, direction, final=final, size=size)


def after_gap(rig: Rig) -> Rig:
    return rig.late(3001).say(100)


def fires(key: TimerKey) -> Step:
    return lambda rig: rig.late(60_000).call(key)


def deaf_for_long(turn: Callable[[Rig, bool], Rig]) -> Step:
    return lambda rig: turn(rig, True).silence(60_000)


def deaf_a_while(turn: Callable[[Rig, bool], Rig]) -> Step:
    """Ends what began before; a pause counts from then on."""
    return lambda rig: turn(turn(rig, True).silence(60_000), False).silence(2999)


LARGE = chunk(100, size=1000)
CELLS: dict[tuple[str, str], tuple[str, list[Case]]] = {
    ("chunk", "IDLE"): ("gather", [
        (idle, chunk(), _NO, _P, ["close 0"]),
        (fragment, chunk(), _NO, _P, ["close 0 1"]),
        (other_fragment, chunk(), _NO, _P | _F, ["close 0", "close 1"]),
    ]),
    ("chunk", "GATHERING"): ("gather", [(gathering, chunk(), _NO, _P, ["close 0 1"])]),
    ("chunk", "FULL"): ("join, or cut and gather", [
        (full, chunk(150), _NO, _P, ["close 0 1"]),
        (full, chunk(151), ["long 0"], _P, ["close 1"]),
    ]),
    ("chunk", "HANGOVER"): ("join, or cut and gather", [
        (ended, chunk(200), _NO, _H, ["final 0 1"]),
        (ended, chunk(201), ["final 0"], _P, ["close 1"]),
        (paused, chunk(150), _NO, _H, ["pause 0 1"]),
        (paused, chunk(151), ["pause 0"], _P, ["close 1"]),
    ]),
    ("last chunk", "IDLE"): ("gather, end", [
        (idle, chunk(final=True), _NO, _H, ["final 0"]),
        (fragment, chunk(final=True), _NO, _H, ["final 0 1"]),
    ]),
    ("last chunk", "GATHERING"): ("gather, end", [
        (gathering, chunk(final=True), _NO, _H, ["final 0 1"]),
        (short, chunk(final=True), _NO, _H, ["final 0 1"]),
    ]),
    ("last chunk", "FULL"): ("as chunk, end", [
        (full, chunk(150, final=True), _NO, _H, ["final 0 1"]),
        (full, chunk(151, final=True), ["long 0"], _H, ["final 1"]),
    ]),
    ("last chunk", "HANGOVER"): ("join (a repeated end), or cut, gather, end", [
        (ended, chunk(200, final=True), _NO, _H, ["final 0 1"]),
        (ended, chunk(201, final=True), ["final 0"], _H, ["final 1"]),
        (paused, chunk(150, final=True), _NO, _H, ["final 0 1"]),
        (paused, chunk(151, final=True), ["pause 0"], _H, ["final 1"]),
    ]),
    ("end, no data", "IDLE"): ("end the fragment, or an empty end", [
        (idle, Rig.end, _NO, set(), _NO),
        (fragment, Rig.end, _NO, _H, ["final 0"]),
        (other_fragment, Rig.end, _NO, _F, ["close 0"]),
    ]),
    ("end, no data", "GATHERING"): ("end", [(gathering, Rig.end, _NO, _H, ["final 0"])]),
    ("end, no data", "FULL"): ("end", [(full, Rig.end, _NO, _H, ["final 0"])]),
    ("end, no data", "HANGOVER"): ("a repeated end", [
        (ended, Rig.end, _NO, _H, ["final 0"]),
        (paused, Rig.end, _NO, _H, ["final 0"]),
    ]),
    ("other side", "IDLE"): ("gather", [
        (idle, chunk(direction=BA), _NO, _P, ["close 0"]),
        (fragment, chunk(direction=BA), _NO, _P | _F, ["close 0", "close 1"]),
        (other_fragment, chunk(direction=BA), _NO, _P, ["close 0 1"]),
    ]),
    ("other side", "GATHERING"): ("break, gather", [
        (gathering, chunk(direction=BA), ["interrupted 0"], _P, ["close 1"]),
        (short, chunk(direction=BA), _NO, _P | _F, ["close 0", "close 1"]),
        (gathering, chunk(0, BA, final=True), ["interrupted 0"], set(), _NO),
    ]),
    ("other side", "FULL"): ("break, gather", [
        (full, chunk(direction=BA), ["interrupted 0"], _P, ["close 1"]),
    ]),
    ("other side", "HANGOVER"): ("cut, gather", [
        (ended, chunk(direction=BA), ["final 0"], _P, ["close 1"]),
        (paused, chunk(direction=BA), ["pause 0"], _P, ["close 1"]),
    ]),
    ("after a gap", "IDLE"): ("gather", [
        (idle, after_gap, _NO, _P, ["close 0"]),
        (fragment, after_gap, _NO, _P, ["close 0 1"]),
    ]),
    ("after a gap", "GATHERING"): ("pause, gather", [
        (gathering, after_gap, ["pause 0"], _P, ["close 1"]),
        (short, after_gap, _NO, _P, ["close 0 1"]),
    ]),
    ("after a gap", "FULL"): ("pause, gather", [(full, after_gap, ["pause 0"], _P, ["close 1"])]),
    ("after a gap", "HANGOVER"): ("as chunk", [
        (ended, lambda rig: rig.late(3001).say(200).late(-3001), _NO, _H, ["final 0 1"]),
        (ended, lambda rig: rig.late(3001).say(201), ["final 0"], _P, ["close 1"]),
    ]),
    ("too large", "IDLE"): ("gather", [(idle, LARGE, _NO, _P, ["close 0"])]),
    ("too large", "GATHERING"): ("cut, gather", [
        (gathering, LARGE, ["large 0"], _P, ["close 1"]),
        (short, LARGE, ["large 0"], _P, ["close 1"]),
    ]),
    ("too large", "FULL"): ("cut, gather", [(full, LARGE, ["large 0"], _P, ["close 1"])]),
    ("too large", "HANGOVER"): ("cut, gather", [(ended, LARGE, ["final 0"], _P, ["close 1"])]),
    ("timer pause", "IDLE"): ("-", [
        (idle, fires(PAUSE), _NO, set(), _NO),
    ]),
    ("timer pause", "GATHERING"): ("pause, or later", [
        (gathering, lambda rig: rig.silence(3000), _NO, _H, ["pause 0"]),
        (short, lambda rig: rig.silence(3000), _NO, _F, ["close 0"]),
        (gathering, lambda rig: rig.silence(2000).say().silence(2999), _NO, _P, ["close 0 1"]),
    ]),
    ("timer pause", "FULL"): ("pause, or later", [
        (full, lambda rig: rig.silence(3000), _NO, _H, ["pause 0"]),
        (full, lambda rig: rig.silence(2000).say().silence(2999), _NO, _P, ["close 0 1"]),
    ]),
    ("timer pause", "HANGOVER"): ("-", [
        (ended, lambda rig: rig.call(PAUSE), _NO, _H, ["final 0"]),
    ]),
    ("timer hangover", "IDLE"): ("-", [(idle, fires(HANGOVER), _NO, set(), _NO)]),
    ("timer hangover", "GATHERING"): ("-", [
        (gathering, lambda rig: rig.call(HANGOVER), _NO, _P, ["close 0"]),
    ]),
    ("timer hangover", "FULL"): ("-", [
        (full, lambda rig: rig.call(HANGOVER), _NO, _P, ["close 0"]),
    ]),
    ("timer hangover", "HANGOVER"): ("cut", [
        (ended, lambda rig: rig.silence(200), ["final 0"], set(), _NO),
        (paused, lambda rig: rig.silence(150), ["pause 0"], set(), _NO),
    ]),
    ("timer fragment", "IDLE"): ("send it alone", [
        (idle, fires(FRAGMENT), _NO, set(), _NO),
        (fragment, lambda rig: rig.silence(10_000), ["pause 0"], set(), _NO),
    ]),
    ("timer fragment", "GATHERING"): ("send it alone", [
        (other_fragment, lambda rig: rig.silence(9000).say().silence(1000),
         ["pause 0"], _P, ["close 1"]),
    ]),
    ("timer fragment", "FULL"): ("send it alone", [
        (other_fragment, lambda rig: rig.silence(9000).say(1000).silence(1000),
         ["pause 0"], _P, ["close 1"]),
    ]),
    ("timer fragment", "HANGOVER"): ("send it alone", [
        (other_fragment, lambda rig: rig.silence(9900).say(final=True).silence(100),
         ["pause 0"], _H, ["final 1"]),
    ]),
    ("close", "IDLE"): ("send fragments", [
        (idle, Rig.close, _NO, set(), _NO),
        (fragment, Rig.close, ["close 0"], set(), _NO),
    ]),
    ("close", "GATHERING"): ("cut, send them", [
        (gathering, Rig.close, ["close 0"], set(), _NO),
        (short, Rig.close, ["close 0"], set(), _NO),
        (lambda: other_fragment().say(), Rig.close, ["close 0", "close 1"], set(), _NO),
    ]),
    ("close", "FULL"): ("cut, send them", [
        (full, Rig.close, ["close 0"], set(), _NO),
        (lambda: other_fragment().say(1000), Rig.close, ["close 0", "close 1"], set(), _NO),
    ]),
    ("close", "HANGOVER"): ("cut, send them", [
        (ended, Rig.close, ["final 0"], set(), _NO),
        (paused, Rig.close, ["pause 0"], set(), _NO),
        (lambda: other_fragment().end(), Rig.close, ["close 0"], set(), _NO),
        (lambda: other_fragment().say(final=True), Rig.close, ["close 0", "final 1"], set(), _NO),
    ]),
}  # fmt: skip


def deaf_cells(
    name: str, turn: Callable[[Rig, bool], Rig], on: dict[str, str], off: dict[str, str]
) -> dict[tuple[str, str], tuple[str, list[Case]]]:
    """The cells of events that suppress pauses. They change nothing in the hangover."""
    cells: dict[tuple[str, str], tuple[str, list[Case]]] = {}
    begins, ends = deaf_for_long(turn), deaf_a_while(turn)
    for phase, before in (("GATHERING", gathering), ("FULL", full)):
        cells[f"{name} on", phase] = (on[phase], [(before, begins, _NO, set(), ["close 0"])])
        cells[f"{name} off", phase] = (
            off[phase],
            [
                (before, ends, _NO, _P, ["close 0"]),
                (before, lambda rig: ends(rig).silence(1), _NO, _H, ["pause 0"]),
            ],
        )
    silent: Step = lambda rig: begins(rig).say().silence(60_000)  # noqa: E731
    cells[f"{name} on", "IDLE"] = (on["IDLE"], [(idle, silent, _NO, set(), ["close 0"])])
    cells[f"{name} off", "IDLE"] = (off["IDLE"], [(idle, ends, _NO, set(), _NO)])
    cells[f"{name} on", "HANGOVER"] = (on["HANGOVER"], [(ended, begins, ["final 0"], set(), _NO)])
    cells[f"{name} off", "HANGOVER"] = (
        off["HANGOVER"],
        [(ended, lambda rig: turn(turn(rig, True), False), _NO, _H, ["final 0"])],
    )
    return cells


CELLS |= deaf_cells(
    "playback",
    Rig.playback,
    {"IDLE": "no pause", "GATHERING": "no pause", "FULL": "no pause", "HANGOVER": "-"},
    {"IDLE": "-", "GATHERING": "pause from now", "FULL": "pause from now", "HANGOVER": "-"},
)
_AS_PLAYBACK = dict.fromkeys(PHASES, "as playback") | {"HANGOVER": "-"}
_HOLD = deaf_cells("hold", Rig.hold, _AS_PLAYBACK, _AS_PLAYBACK)
CELLS |= {
    ("hold on, off", phase): (
        _HOLD["hold on", phase][0],
        _HOLD["hold on", phase][1] + _HOLD["hold off", phase][1],
    )
    for phase in PHASES
}


def test_every_cell_of_the_table_is_tried() -> None:
    assert {cell: text for cell, (text, _) in CELLS.items()} == table()


@pytest.mark.parametrize(("event", "phase"), CELLS)
def test_every_event_in_every_phase_does_what_the_table_says(event: str, phase: str) -> None:
    for before, step, cuts, timers, at_close in CELLS[event, phase][1]:
        rig = before()
        assert rig.told() == []

        step(rig)

        assert (rig.told(), rig.timers_set()) == (cuts, timers)
        assert rig.close().told() == at_close
        assert rig.timers_set() == set()


@pytest.mark.parametrize(
    ("before", "step", "counted"),
    [
        (idle, Rig.end, {"empty_end": 1}),
        (gathering, Rig.end, {}),
        (ended, Rig.end, {"repeated_end": 1}),
        (ended, chunk(final=True), {"repeated_end": 1}),
        (ended, chunk(201, final=True), {}),
        (paused, Rig.end, {"repeated_end": 1}),
        (short, after_gap, {"fragment_kept": 1}),
    ],
)
def test_ends_that_cut_nothing_are_counted(
    before: Callable[[], Rig], step: Step, counted: dict[str, int]
) -> None:
    assert step(before()).counts == counted
