"""Turn affinity: which jobs meet on one node, and when they are free again."""

from collections.abc import Callable
from typing import Any

import pytest

from .scripts import (
    BY_MAX_DURATION,
    BY_POOL,
    BY_PREFERRED,
    BY_TIMEOUT,
    DRAINING,
    EXCLUDED,
    FULL,
    HIT,
    INTERRUPTED,
    IS_FINAL,
    MAX_DURATION,
    MAX_LENGTH,
    NONE,
    OFFLINE,
    SESSION_CLOSE,
    TIMEOUT,
    UNAVAILABLE,
    UNSPECIFIED,
    Chosen,
    Placed,
    Refused,
    Scripts,
    able,
)

NODES = [f"n{number}" for number in range(1, 6)]
PAUSES = [TIMEOUT, INTERRUPTED]
ENDINGS = [IS_FINAL, TIMEOUT, INTERRUPTED, SESSION_CLOSE]


@pytest.fixture
def fleet(scripts: Scripts) -> Scripts:
    """Five nodes with room for eight jobs each."""
    for node in NODES:
        scripts.join(node, most=8)
    return scripts


def turn(
    fleet: Scripts, utterance: int, reason: int, *, job: str = "", **options: Any
) -> Placed | Refused:
    """A job of session s; each utterance is a job of its own."""
    options = {"session": "s"} | options
    return fleet.allocate(job or f"j{utterance}", utterance=utterance, reason=reason, **options)


def placed(fleet: Scripts, utterance: int, reason: int, *, job: str = "", **options: Any) -> Placed:
    answer = turn(fleet, utterance, reason, job=job, **options)
    assert isinstance(answer, Placed), answer
    return answer


def said(fleet: Scripts, utterance: int, reason: int) -> str:
    """The node that heard an utterance; it is done with it."""
    node = placed(fleet, utterance, reason).node
    fleet.complete(node, f"j{utterance}")
    return node


def others(node: str) -> list[str]:
    return [other for other in NODES if other != node]


def bound_elsewhere_than_chance(fleet: Scripts, reason: int = MAX_DURATION) -> Placed:
    """A turn whose node has so much to do that chance would take any other."""
    first = placed(fleet, 1, reason)
    for number in range(4):
        assert isinstance(fleet.reserve(first.node, f"busy{number}"), tuple)
    return first


def fill(fleet: Scripts, node: str) -> None:
    live = fleet.known(node)
    for number in range(live.max_concurrent_jobs - live.used):
        fleet.reserve(node, f"fill-{node}-{number}")


@pytest.mark.parametrize("reason", [MAX_DURATION, MAX_LENGTH])
def test_speech_that_was_cut_goes_on_at_the_same_node(fleet: Scripts, reason: int) -> None:
    first = bound_elsewhere_than_chance(fleet, reason)
    assert (first.path, first.binding) == (BY_POOL, NONE)
    second = placed(fleet, 2, reason)
    assert (second.node, second.path) == (first.node, BY_MAX_DURATION)
    assert (second.binding, second.binding_kind) == (HIT, 2)
    assert placed(fleet, 3, reason).node == first.node


def test_the_answer_of_the_other_speaker_is_not_bound(fleet: Scripts) -> None:
    first = bound_elsewhere_than_chance(fleet)
    answer = placed(fleet, 2, MAX_DURATION, src="en", tgt="zh")
    assert (answer.node in others(first.node), answer.binding) == (True, NONE)
    assert placed(fleet, 3, MAX_DURATION).node == first.node


def test_another_session_is_not_bound(fleet: Scripts) -> None:
    first = bound_elsewhere_than_chance(fleet)
    assert placed(fleet, 1, MAX_DURATION, job="other", session="t").node != first.node


def test_a_session_of_the_same_id_of_another_tenant_is_not_bound(fleet: Scripts) -> None:
    first = bound_elsewhere_than_chance(fleet)
    before = fleet.turn("s")
    theirs = placed(fleet, 9, MAX_DURATION, job="theirs", tenant="t2")
    assert (theirs.node in others(first.node), theirs.binding) == (True, NONE)
    assert fleet.bind("s", theirs.node, utterance=99, tenant="t2") == "bound"
    assert fleet.clear("s", tenant="t3") == 0
    assert fleet.turn("s") == before
    assert placed(fleet, 2, MAX_DURATION).node == first.node


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_job_that_ends_a_turn_goes_to_its_node_and_frees_the_next(
    fleet: Scripts, ending: int
) -> None:
    first = bound_elsewhere_than_chance(fleet)
    last = placed(fleet, 2, ending)
    assert (last.node, last.path) == (first.node, BY_MAX_DURATION)
    assert fleet.turn("s") == {"turn": "2"}
    after = placed(fleet, 3, IS_FINAL)
    assert (after.node in others(first.node), after.binding) == (True, NONE)


@pytest.mark.parametrize("ending", ENDINGS)
def test_an_ending_job_outside_a_turn_binds_nothing(fleet: Scripts, ending: int) -> None:
    placed(fleet, 1, ending)
    assert fleet.turn("s") == {"turn": "1"}
    assert placed(fleet, 2, ending).binding == NONE


def test_both_kinds_of_binding_are_gone_after_the_end(fleet: Scripts) -> None:
    _bind_both(fleet, timeout="n1", max_duration="n2")
    placed(fleet, 2, IS_FINAL)
    assert fleet.turn("s") == {"turn": "2"}


@pytest.mark.parametrize("reason", PAUSES)
def test_a_node_that_holds_audio_after_a_pause_gets_the_next_job(
    fleet: Scripts, reason: int
) -> None:
    first = bound_elsewhere_than_chance(fleet, reason)
    assert fleet.bind("s", first.node, utterance=1) == "bound"
    second = placed(fleet, 2, IS_FINAL)
    assert (second.node, second.path) == (first.node, BY_TIMEOUT)
    assert (second.binding, second.binding_kind) == (HIT, 1)


def test_audio_held_is_ignored_once_a_later_utterance_was_placed(fleet: Scripts) -> None:
    first = bound_elsewhere_than_chance(fleet, TIMEOUT)
    placed(fleet, 2, IS_FINAL)
    assert fleet.bind("s", first.node, utterance=1) == "late"
    assert fleet.turn("s") == {"turn": "2"}
    assert placed(fleet, 3, IS_FINAL).binding == NONE


def test_a_node_holds_a_turn_over_so_many_pauses_and_no_more(fleet: Scripts) -> None:
    first = bound_elsewhere_than_chance(fleet, TIMEOUT)
    for utterance in range(1, 5):
        assert fleet.bind("s", first.node, utterance=utterance) == "bound"
        assert fleet.bind("s", first.node, utterance=utterance) == "bound"  # a repeat
        assert fleet.turn("s")["holds"] == str(utterance)
        assert said(fleet, utterance + 1, TIMEOUT) == first.node
    assert fleet.bind("s", first.node, utterance=5) == "limit"
    assert placed(fleet, 6, TIMEOUT).binding == NONE
    # The row has ended.
    assert fleet.bind("s", first.node, utterance=6) == "bound"
    assert fleet.turn("s")["holds"] == "1"


def test_long_speech_is_no_hold_and_does_not_end_a_row_of_them(fleet: Scripts) -> None:
    first = bound_elsewhere_than_chance(fleet, TIMEOUT)
    assert fleet.bind("s", first.node, utterance=1) == "bound"
    for utterance in range(2, 12):
        assert said(fleet, utterance, MAX_DURATION) == first.node
        assert fleet.bind("s", first.node, utterance=utterance, kind="max_duration") == "bound"
        assert fleet.turn("s")["holds"] == "1"


def test_without_a_limit_a_node_may_hold_for_ever(fleet: Scripts) -> None:
    fleet.with_limits(held_in_row_max=0)
    node = said(fleet, 1, TIMEOUT)
    for utterance in range(1, 20):
        assert fleet.bind("s", node, utterance=utterance) == "bound"
        assert said(fleet, utterance + 1, TIMEOUT) == node


def test_a_node_that_holds_whatever_it_hears_does_not_keep_the_conversation(
    scripts: Scripts,
) -> None:
    for number in range(10):
        scripts.join(f"n{number}", most=1000)
    heard = 0
    for utterance in range(2_000):
        node = said(scripts, utterance, TIMEOUT)
        heard += node == "n0"
        if node == "n0":
            scripts.bind("s", "n0", utterance=utterance)
    # It hears five for each one that the other nine hear: 5 / 14.
    assert 0.25 < heard / 2_000 < 0.45


def test_audio_cannot_be_held_by_a_node_that_is_not_known_or_on_its_way_out(
    fleet: Scripts,
) -> None:
    assert fleet.bind("s", "stranger", utterance=1) == "late"
    fleet.remove_step("n1", forget=False, step=1)
    assert fleet.bind("s", "n1", utterance=1) == "late"


def test_the_pause_binding_goes_before_the_long_speech_binding(fleet: Scripts) -> None:
    _bind_both(fleet, timeout="n1", max_duration="n2")
    chosen = fleet.select(session="s")
    assert isinstance(chosen, Chosen)
    assert (chosen.node, chosen.path) == ("n1", BY_TIMEOUT)
    fleet.client.hset(fleet.key("turn", "t1", "s", "zh", "en"), "timeout_until_ms", fleet.now)
    chosen = fleet.select(session="s")
    assert isinstance(chosen, Chosen)
    assert (chosen.node, chosen.path) == ("n2", BY_MAX_DURATION)


def _bind_both(fleet: Scripts, *, timeout: str, max_duration: str) -> None:
    until = fleet.now + 300_000
    both = {"timeout_node_id": timeout, "timeout_until_ms": until, "turn": 1}
    both |= {"max_duration_node_id": max_duration, "max_duration_until_ms": until}
    fleet.client.hset(fleet.key("turn", "t1", "s", "zh", "en"), mapping=both)


def _stale(fleet: Scripts, node: str) -> None:
    fleet.advance(14_000)
    fleet.beat(*((other, fleet.known(other).epoch) for other in others(node)))
    fleet.advance(1_000)


@pytest.mark.parametrize(
    "fate",
    [
        pytest.param(lambda fleet, node: fleet.set_health(node, OFFLINE), id="stream ended"),
        pytest.param(lambda fleet, node: fleet.set_health(node, DRAINING), id="drains"),
        pytest.param(
            lambda fleet, node: fleet.set_health(node, DRAINING, by_operator=True),
            id="drained by an operator",
        ),
        pytest.param(_stale, id="silent"),
        pytest.param(lambda fleet, node: fleet.remove(node), id="removed"),
        pytest.param(lambda fleet, node: fleet.remove(node, forget=False), id="expelled"),
        pytest.param(
            lambda fleet, node: fleet.join(node, able(asr=["en"]), stream="s2"),
            id="left the pool",
        ),
    ],
)
def test_a_turn_goes_elsewhere_when_its_node(
    fleet: Scripts, fate: Callable[[Scripts, str], object]
) -> None:
    first = placed(fleet, 1, MAX_DURATION)
    fate(fleet, first.node)
    second = placed(fleet, 2, MAX_DURATION)
    assert second.node in others(first.node)
    assert (second.path, second.binding, second.binding_kind) == (BY_POOL, UNAVAILABLE, 2)
    assert placed(fleet, 3, MAX_DURATION).node == second.node


def test_an_ejected_or_overloaded_node_still_gets_its_own_turn(fleet: Scripts) -> None:
    first = placed(fleet, 1, MAX_DURATION)
    for number in range(3):
        fleet.reserve(first.node, f"bad{number}")
        fleet.release(first.node, f"bad{number}", fault=True)
    fleet.beat((first.node, first.epoch), load=1.0)
    assert fleet.known(first.node).ejected_until_ms > fleet.now
    assert placed(fleet, 2, MAX_DURATION).node == first.node


def test_a_full_bound_node_is_waited_for_only_where_the_caller_asks(fleet: Scripts) -> None:
    first = placed(fleet, 1, MAX_DURATION)
    fill(fleet, first.node)
    full = Refused("BOUND_NODE_FULL", {first.node: "full"})
    assert turn(fleet, 2, MAX_DURATION, may_wait=True) == full
    assert fleet.job("j2") == {}
    assert fleet.turn("s")["max_duration_node_id"] == first.node
    fleet.release(first.node, f"fill-{first.node}-0")
    assert placed(fleet, 2, MAX_DURATION, may_wait=True).node == first.node


@pytest.mark.parametrize(
    "fate",
    [
        pytest.param(
            (lambda fleet, node: fleet.set_health(node, OFFLINE), "disconnected"),
            id="has no stream",
        ),
        pytest.param((_stale, "silent"), id="is silent"),
    ],
)
def test_a_bound_node_is_waited_for_where_the_caller_asks_while_it(
    fleet: Scripts, fate: tuple[Callable[[Scripts, str], object], str]
) -> None:
    first = placed(fleet, 1, MAX_DURATION)
    befalls, waits_for = fate
    befalls(fleet, first.node)
    away = Refused("BOUND_NODE_FULL", {first.node: waits_for})
    assert turn(fleet, 2, MAX_DURATION, may_wait=True) == away
    fleet.join(first.node, stream="s2")
    assert placed(fleet, 2, MAX_DURATION, may_wait=True).node == first.node


def test_a_turn_that_waits_gets_the_next_slot_of_its_node(fleet: Scripts) -> None:
    first = placed(fleet, 1, MAX_DURATION)
    fill(fleet, first.node)
    assert isinstance(turn(fleet, 2, MAX_DURATION, may_wait=True), Refused)
    fleet.release(first.node, f"fill-{first.node}-0")
    for number in range(20):
        other = fleet.place(f"other-{number}", preferred=first.node)
        assert other.node != first.node
        fleet.release(other.node, f"other-{number}")
    assert placed(fleet, 2, MAX_DURATION, may_wait=True).node == first.node


def test_a_slot_is_kept_only_while_the_turn_still_asks(fleet: Scripts) -> None:
    first = placed(fleet, 1, MAX_DURATION)
    fill(fleet, first.node)
    assert isinstance(turn(fleet, 2, MAX_DURATION, may_wait=True), Refused)
    fleet.release(first.node, f"fill-{first.node}-0")
    fleet.advance(301)
    assert fleet.place("other", preferred=first.node).node == first.node


def test_a_full_bound_node_is_left_where_the_caller_does_not_wait(fleet: Scripts) -> None:
    first = placed(fleet, 1, MAX_DURATION)
    fill(fleet, first.node)
    second = placed(fleet, 2, MAX_DURATION)
    assert second.node in others(first.node)
    assert (second.binding, second.binding_kind) == (FULL, 2)
    assert fleet.turn("s")["max_duration_node_id"] == second.node


def test_a_refused_allocation_leaves_the_binding_as_it_was(fleet: Scripts) -> None:
    first = placed(fleet, 1, MAX_DURATION)
    before = fleet.turn("s")
    assert isinstance(turn(fleet, 2, IS_FINAL, exclude=NODES), Refused)
    assert fleet.turn("s") == before
    assert placed(fleet, 2, IS_FINAL).node == first.node


def test_a_retry_on_another_node_takes_its_binding_along(fleet: Scripts) -> None:
    first = placed(fleet, 1, MAX_DURATION)
    fleet.release(first.node, "j1", fault=True)
    again = fleet.place(
        "j1", 2, utterance=1, reason=MAX_DURATION, session="s", exclude=[first.node]
    )
    assert (again.node in others(first.node), again.binding) == (True, EXCLUDED)
    assert placed(fleet, 2, MAX_DURATION).node == again.node


def test_of_two_hedged_attempts_the_faster_one_has_the_binding(fleet: Scripts) -> None:
    first = placed(fleet, 1, MAX_DURATION)
    hedge = fleet.place(
        "j1", 2, utterance=1, reason=MAX_DURATION, session="s", exclude=[first.node]
    )
    assert hedge.node != first.node
    fleet.commit(first.node, "j1", 1)
    assert placed(fleet, 2, MAX_DURATION).node == first.node


def test_a_result_that_comes_with_its_acknowledgement_keeps_the_turn_on_its_node(
    fleet: Scripts,
) -> None:
    first = placed(fleet, 1, MAX_DURATION)
    assert fleet.complete(first.node, "j1") == ("completed", "done")
    assert placed(fleet, 2, MAX_DURATION).node == first.node


def test_of_two_hedged_attempts_the_one_with_a_result_has_the_binding(fleet: Scripts) -> None:
    first = placed(fleet, 1, MAX_DURATION)
    hedge = fleet.place(
        "j1", 2, utterance=1, reason=MAX_DURATION, session="s", exclude=[first.node]
    )
    assert hedge.node != first.node
    assert fleet.complete(first.node, "j1", 1) == ("completed", "done")
    assert placed(fleet, 2, MAX_DURATION).node == first.node


def test_a_late_retry_of_an_earlier_utterance_changes_no_binding(fleet: Scripts) -> None:
    first = placed(fleet, 1, IS_FINAL)
    second = placed(fleet, 2, MAX_DURATION)
    before = fleet.turn("s")
    fleet.release(first.node, "j1", fault=True)
    for reason in (IS_FINAL, MAX_DURATION):
        late = fleet.place("j1", 2, utterance=1, reason=reason, session="s", exclude=[second.node])
        fleet.release(late.node, "j1", late.attempt)
        assert fleet.turn("s") == before


def test_a_repeated_ending_allocation_still_answers_the_bound_node(fleet: Scripts) -> None:
    bound_elsewhere_than_chance(fleet)
    last = placed(fleet, 2, IS_FINAL)
    again = placed(fleet, 2, IS_FINAL)
    assert (again.existing, again.node, again.path) == (True, last.node, BY_MAX_DURATION)
    assert again.attempt == last.attempt
    assert fleet.turn("s") == {"turn": "2"}


@pytest.mark.parametrize("reason", PAUSES)
def test_every_pause_binds_where_nodes_cannot_say_what_they_hold(
    fleet: Scripts, reason: int
) -> None:
    fleet.with_limits(timeout_binds=True)
    first = bound_elsewhere_than_chance(fleet, reason)
    second = placed(fleet, 2, reason)
    assert (second.node, second.path, second.binding_kind) == (first.node, BY_TIMEOUT, 1)


@pytest.mark.parametrize(("passed_ms", "binding"), [(299_999, HIT), (300_000, NONE)])
def test_a_binding_ends_after_its_time(fleet: Scripts, passed_ms: int, binding: int) -> None:
    first = bound_elsewhere_than_chance(fleet)
    epochs = [(node, fleet.known(node).epoch) for node in NODES]
    fleet.advance(passed_ms)
    fleet.beat(*epochs)
    second = placed(fleet, 2, MAX_DURATION)
    assert second.binding == binding
    assert binding == NONE or second.node == first.node


def test_another_node_that_is_strictly_preferred_overrules_the_binding(fleet: Scripts) -> None:
    first = placed(fleet, 1, MAX_DURATION)
    other = others(first.node)[0]
    second = placed(fleet, 2, MAX_DURATION, preferred=other, strict=True)
    assert (second.node, second.path, second.binding) == (other, BY_PREFERRED, EXCLUDED)
    assert placed(fleet, 3, MAX_DURATION, preferred=other, strict=True).binding == HIT


def test_the_binding_overrules_a_node_that_is_only_preferred(fleet: Scripts) -> None:
    first = placed(fleet, 1, MAX_DURATION)
    second = placed(fleet, 2, MAX_DURATION, preferred=others(first.node)[0])
    assert (second.node, second.path) == (first.node, BY_MAX_DURATION)


def test_clearing_a_session_frees_the_named_directions_and_counts_them(fleet: Scripts) -> None:
    bound_elsewhere_than_chance(fleet)
    back = placed(fleet, 2, MAX_DURATION, src="en", tgt="zh")
    assert fleet.clear("s", ("zh", "en"), ("zh", "fr")) == 1
    assert fleet.clear("s", ("zh", "en")) == 0
    assert fleet.turn("s") == {"turn": "1"}
    assert placed(fleet, 3, MAX_DURATION).binding == NONE
    assert placed(fleet, 4, MAX_DURATION, src="en", tgt="zh").node == back.node


def test_audio_of_an_earlier_utterance_cannot_be_held_after_a_clear(fleet: Scripts) -> None:
    placed(fleet, 5, MAX_DURATION)
    fleet.clear("s")
    assert fleet.bind("s", "n1", utterance=4) == "late"
    assert fleet.bind("s", "n1", utterance=5) == "bound"


def test_a_choice_without_an_utterance_uses_the_binding_and_leaves_it(fleet: Scripts) -> None:
    first = bound_elsewhere_than_chance(fleet)
    before = fleet.turn("s")
    assert placed(fleet, 0, UNSPECIFIED, job="tool").node == first.node
    chosen = fleet.select(session="s")
    assert isinstance(chosen, Chosen)
    assert (chosen.node, chosen.binding) == (first.node, HIT)
    assert fleet.turn("s") == before


def test_a_job_without_a_session_neither_uses_nor_makes_a_binding(fleet: Scripts) -> None:
    first = bound_elsewhere_than_chance(fleet)
    free = placed(fleet, 2, MAX_DURATION, session="")
    assert (free.node in others(first.node), free.binding) == (True, NONE)
    assert fleet.turn("s")["turn"] == "1"
