"""Every row of the table in elsewhere.py: what is asked next, and why."""

from collections.abc import Sequence
from typing import Any

import pytest

from lingua_scheduler.services.pool_service.attempts.elsewhere import (
    Answer,
    AskOwnCell,
    Fail,
    Forget,
    GiveBack,
    Look,
    Placing,
    Step,
    Take,
    Taken,
)
from lingua_scheduler.v1 import pool_pb2

HIT = pool_pb2.BINDING_OUTCOME_HIT
UNAVAILABLE = pool_pb2.BINDING_OUTCOME_UNAVAILABLE
NONE = pool_pb2.BINDING_OUTCOME_NONE
FULL = pool_pb2.BINDING_OUTCOME_FULL

PLACED = [b"ok", 0, 1, b"reserved", 9, b"n0", 7, b"d", b"d:1", 4, NONE, 0, b"", b"job"]
NO_ROOM = [b"ALL_CANDIDATES_FULL_OR_FAILED", [1, NONE], b"full", 2, b"drawn", 2]
NO_NODE = [b"NO_CAPABLE_NODE", [1, NONE], b"drawn", 0]
NOT_PREFERRED = [b"PREFERRED_NODE_NOT_CAPABLE", [1, NONE]]
BOUND = [b"bound_elsewhere", b"n1", b"1", 3, 1]
QUOTA = [b"QUOTA_EXCEEDED", b"jobs", 2, b"limit", 2, b"retry_ms", 200]
TAKEN = [b"ok", 0, 1, b"reserved", 50, b"n1", 8, b"e", b"e:1", 4]
FULL_THERE = [b"ALL_CANDIDATES_FULL_OR_FAILED", b"full", 1, b"drawn", 1]
NONE_THERE = [b"NO_CAPABLE_NODE", b"drawn", 0]
CONFIRMED = [b"ok", 0, 1, b"reserved", 0, b"n1", 0, b"", b"", 4, NONE, 0, b"", b"job"]
ELSEWHERE = [b"elsewhere", 1, 1, b"reserved", 0, b"n1", 0, b"", b"", 4, NONE, 0, b"", b"job", b"1"]
THERE = [b"ok", 1, 1, b"reserved", 50, b"n1", 8, b"e", b"e:1", 4]
OVER = [b"ok", 1, 1, b"done", 0, b"n0", 0, b"", b"", 4, NONE, 0, b"", b"job"]
AWAY = ConnectionError("away")


def placing(**options: Any) -> Placing:
    """A job of cell 0; others are asked in the order 1, 2, 3."""
    order = {"others": lambda: [1, 2, 3], "cell_of_node": lambda _: 2, "tries": 2}
    return Placing(**{"own": 0, **order, **options})


def walk(placing: Placing, *answers: Any) -> Step:
    """The step after home and then each cell in turn have answered so."""
    step: Step = AskOwnCell()
    for answer in answers:
        if isinstance(answer, Exception):
            step = placing.away(step, answer)
        else:
            step = placing.after(step, answer)
    return step


def confirmed(reply: Sequence[Any], binding: int = NONE) -> AskOwnCell:
    """The question to home about a slot in cell 1."""
    return AskOwnCell(unbound=binding, taken=Taken(1, 1, reply))


@pytest.mark.parametrize("reply", [PLACED, OVER, QUOTA, [b"SESSION_TAKEN_OVER"]])
def test_what_home_decides_is_the_answer(reply: list[Any]) -> None:
    assert walk(placing(), reply) == Answer(reply)


@pytest.mark.parametrize(
    ("answers", "step"),
    [
        ([NO_ROOM], Take(1, 1)),
        ([NO_NODE], Take(1, 1)),
        ([NO_ROOM, FULL_THERE], Take(2, 1)),
        ([NO_ROOM, [b"gone"]], Take(2, 1)),
        ([NO_ROOM, AWAY], Take(2, 1)),
        ([NO_ROOM, TAKEN], confirmed(TAKEN)),
        ([NOT_PREFERRED], Take(2, 1, preferred=True)),
        ([NOT_PREFERRED, NOT_PREFERRED], Take(1, 1, preferred=True)),
        ([NOT_PREFERRED, AWAY], Take(1, 1, preferred=True)),
        ([NOT_PREFERRED, FULL_THERE], AskOwnCell(unbound=NONE, prefers=False)),
        ([BOUND], Take(1, 1, bound=b"n1", path=3)),
        ([[*BOUND[:2], b"", 3, 1]], Take(2, 1, bound=b"n1", path=3)),
        ([BOUND, TAKEN], confirmed(TAKEN, HIT)),
        ([BOUND, [b"unbound", FULL]], AskOwnCell(unbound=FULL)),
        ([BOUND, [b"gone"]], Take(2, 1, bound=b"n1", path=3)),
        ([BOUND, [b"unbound", UNAVAILABLE]], Take(2, 1, bound=b"n1", path=3)),
        ([BOUND, [b"gone"], [b"gone"]], AskOwnCell(unbound=UNAVAILABLE)),
        ([BOUND, AWAY], AskOwnCell(unbound=UNAVAILABLE)),
        ([ELSEWHERE], Look(1, 1)),
        ([ELSEWHERE, [b"gone"]], Forget(1)),
        ([ELSEWHERE, [b"gone"], ()], AskOwnCell()),
    ],
)
def test_what_is_asked_next(answers: list[Any], step: Step) -> None:
    assert walk(placing(preferred="n9"), *answers) == step


def test_the_answer_has_the_decision_of_home_and_the_node_of_the_other_cell() -> None:
    merged = [b"ok", 0, 1, b"reserved", 50, b"n1", 8, b"e", b"e:1", 4, NONE, 0, b"", b"job", 1]
    assert walk(placing(), NO_ROOM, TAKEN, CONFIRMED) == Answer(merged)
    # A repeated call, or another caller at the same time, has confirmed the same slot.
    merged[1] = 1
    assert walk(placing(), NO_ROOM, TAKEN, ELSEWHERE) == Answer(merged)
    assert walk(placing(), ELSEWHERE, THERE) == Answer(merged)


@pytest.mark.parametrize(
    ("said", "then"),
    [
        ([*PLACED[:1], 1, *PLACED[2:]], Answer([*PLACED[:1], 1, *PLACED[2:]])),
        (OVER, Answer(OVER)),
        (QUOTA, Answer(QUOTA)),
        ([b"stale"], AskOwnCell()),
        ([*ELSEWHERE[:14], b"3"], Look(3, 1)),
    ],
)
def test_a_slot_that_home_does_not_confirm_is_given_back(said: list[Any], then: Step) -> None:
    machine = placing()
    step = walk(machine, NO_ROOM, TAKEN, said)
    assert step == GiveBack(Taken(1, 1, TAKEN), then)  # type: ignore[arg-type]
    assert machine.after(step, [b"released"]) == then
    assert machine.away(step, AWAY) == then


@pytest.mark.parametrize("answers", [[], [NO_ROOM, TAKEN], [ELSEWHERE], [ELSEWHERE, [b"gone"]]])
def test_the_call_fails_if_a_cell_that_decides_does_not_answer(answers: list[Any]) -> None:
    assert walk(placing(), *answers, AWAY) == Fail(AWAY)


def test_a_turn_waits_for_its_node_in_a_cell_that_is_away() -> None:
    waits = placing(may_wait=True)
    assert walk(waits, BOUND, AWAY) == Answer([b"BOUND_NODE_FULL", b"n1", b"silent"])
    full = [b"BOUND_NODE_FULL", b"n1", b"full"]
    assert walk(waits, BOUND, full) == Answer(full)


def test_a_bound_node_that_should_be_at_home_and_is_not_is_gone() -> None:
    step = walk(placing(cell_of_node=lambda _: 0), [*BOUND[:2], b"", 3, 1])
    assert step == AskOwnCell(unbound=UNAVAILABLE)


def test_a_strict_preference_is_not_passed_over() -> None:
    strict = {"preferred": "n9", "strict": True}
    refused = [NO_ROOM[0], *NO_ROOM[2:]]
    assert walk(placing(**strict), NO_ROOM) == Answer(refused)
    assert walk(placing(**strict), NOT_PREFERRED, FULL_THERE) == Answer(FULL_THERE)


def test_cells_that_are_full_are_limited_and_cells_without_nodes_are_not() -> None:
    counted = Answer([NO_ROOM[0], b"full", 4, b"drawn", 4])
    assert walk(placing(), NO_ROOM, FULL_THERE, FULL_THERE) == counted
    assert walk(placing(tries=1), NO_NODE, NONE_THERE, NONE_THERE) == Take(3, 1)
    assert walk(placing(tries=1), NO_NODE, *[NONE_THERE] * 3) == Answer(
        [b"NO_CAPABLE_NODE", b"drawn", 0]
    )
    assert walk(placing(), NO_NODE, NONE_THERE, FULL_THERE, NONE_THERE) == Answer(
        [b"ALL_CANDIDATES_FULL_OR_FAILED", b"drawn", 1, b"full", 1]
    )
    assert isinstance(walk(placing(tries=0), NO_ROOM), Answer)


def test_home_is_not_asked_for_ever() -> None:
    machine, step = placing(), AskOwnCell()
    for _ in range(20):
        step = machine.after(step, ELSEWHERE)  # type: ignore[assignment]
        if isinstance(step, Look):
            step = machine.after(machine.after(step, [b"gone"]), ())  # type: ignore[assignment]
        if isinstance(step, Answer):
            break
    assert step == Answer([b"ALL_CANDIDATES_FULL_OR_FAILED", b"gone", 1])
