"""The name by which nodes know a turn: the same for what they have to join, and only for that."""

import pytest

from .scripts import (
    HIT,
    IS_FINAL,
    MAX_DURATION,
    MAX_LENGTH,
    TIMEOUT,
    Placed,
    Scripts,
)


@pytest.fixture
def fleet(scripts: Scripts) -> Scripts:
    """Five nodes with room for eight jobs each."""
    for number in range(1, 6):
        scripts.join(f"n{number}", most=8)
    return scripts


def place(
    fleet: Scripts, utterance: int, reason: int, attempt: int = 1, **options: object
) -> Placed:
    options = {"session": "s", **options}
    return fleet.place(f"j{utterance}", attempt, utterance=utterance, reason=reason, **options)


def turn_of(fleet: Scripts, utterance: int, reason: int, **options: object) -> str:
    place(fleet, utterance, reason, **options)
    return fleet.turn_id


def test_a_job_outside_a_turn_is_a_turn_of_its_own(fleet: Scripts) -> None:
    assert [turn_of(fleet, each, IS_FINAL) for each in range(3)] == ["j0", "j1", "j2"]


def test_speech_that_was_cut_is_one_turn_and_what_follows_is_another(fleet: Scripts) -> None:
    reasons = [MAX_DURATION, MAX_LENGTH, MAX_DURATION, IS_FINAL, MAX_DURATION, IS_FINAL]
    turns = [turn_of(fleet, index, reason) for index, reason in enumerate(reasons)]
    assert turns == ["j0", "j0", "j0", "j0", "j4", "j4"]


def test_audio_that_is_held_keeps_the_turn_that_its_job_was_part_of(fleet: Scripts) -> None:
    first = place(fleet, 0, TIMEOUT)
    assert fleet.bind_job("j0", first.node) == "bound"
    assert turn_of(fleet, 1, TIMEOUT) == "j0"
    assert fleet.bind_job("j1", first.node) == "bound"
    assert turn_of(fleet, 2, IS_FINAL) == "j0"
    assert turn_of(fleet, 3, IS_FINAL) == "j3"


def test_each_direction_has_turns_of_its_own(fleet: Scripts) -> None:
    assert turn_of(fleet, 0, MAX_DURATION) == "j0"
    assert turn_of(fleet, 1, MAX_DURATION, src="en", tgt="zh") == "j1"
    assert turn_of(fleet, 2, IS_FINAL) == "j0"
    assert turn_of(fleet, 3, IS_FINAL, src="en", tgt="zh") == "j1"


def test_whoever_takes_a_job_up_is_told_the_same(fleet: Scripts) -> None:
    place(fleet, 0, MAX_DURATION)
    placed = place(fleet, 1, TIMEOUT)
    assert (placed.binding, fleet.turn_id) == (HIT, "j0")
    assert place(fleet, 1, TIMEOUT, home="d2").existing
    assert fleet.turn_id == "j0"
    fleet.commit(placed.node, "j1")
    fleet.complete(placed.node, "j1")
    assert place(fleet, 1, TIMEOUT, home="d2").state == "done"
    assert fleet.turn_id == "j0"


def test_what_cannot_go_on_at_its_node_begins_a_turn_elsewhere(fleet: Scripts) -> None:
    first = place(fleet, 0, MAX_DURATION)
    second = place(fleet, 1, MAX_DURATION, exclude=[first.node])
    assert (second.node != first.node, fleet.turn_id) == (True, "j1")
    assert turn_of(fleet, 2, IS_FINAL) == "j1"


def test_the_attempt_that_counts_names_the_turn(fleet: Scripts) -> None:
    first = place(fleet, 0, MAX_DURATION)
    place(fleet, 1, MAX_DURATION)
    # A hedge elsewhere takes the binding along, until the first attempt is acknowledged after all.
    hedge = place(fleet, 1, MAX_DURATION, 2, exclude=[first.node])
    assert (hedge.node != first.node, fleet.turn_id) == (True, "j1")
    assert fleet.commit(first.node, "j1", 1)[0] == "committed"
    third = place(fleet, 2, IS_FINAL)
    assert (third.node, fleet.turn_id) == (first.node, "j0")


def test_only_the_node_of_an_attempt_holds_its_audio(fleet: Scripts) -> None:
    first = place(fleet, 0, TIMEOUT)
    other = "n1" if first.node != "n1" else "n2"
    assert fleet.bind_job("j0", other) == "late"
    assert fleet.bind_job("j0", first.node, attempt=2) == "late"
    assert fleet.bind_job("unknown", first.node) == "late"
    assert fleet.bind_job("j0", first.node) == "bound"
