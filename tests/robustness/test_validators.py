"""The validators find what they are for: hand-made histories, each with one thing wrong."""

import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.robustness.faults.choice import ALL, draw, excuses_of
from tests.robustness.history import (
    ANY_NODE,
    JAVASCRIPT,
    PYTHON,
    ClientHistory,
    Excuses,
    History,
    NodeHistory,
    Struck,
)
from tests.robustness.report import Report
from tests.robustness.validate import validate
from tests.robustness.validate.recovery import longest_stall, recovery
from tests.support.records import Record


def result(index: int, *words: int, kind: str = "TRANSLATED", **more: Any) -> Record:
    """A result of node-0 that came at second 10 + index."""
    return {
        "t": 10.0 + index,
        "what": "result",
        "index": index,
        "kind": kind,
        "words": [str(word) for word in words],
        "joined": [],
        "node": "node-0",
        **more,
    }


def missing(index: int, reason: str) -> Record:
    """An utterance without a result."""
    return {"t": 10.0 + index, "what": "missing", "index": index, "reason": reason, "message": ""}


def finalized(index: int, audio_ms: int) -> Record:
    """A cut."""
    return {
        "t": 9.0,
        "what": "finalized",
        "index": index,
        "reason": "IS_FINAL",
        "audio_ms": audio_ms,
    }


def job(what: str, index: int, *words: int, **more: Any) -> Record:
    """What a node wrote of a job of session s."""
    texts = [str(word) for word in words]
    which = {"session": "s", "index": index, "attempt": 1, "words": texts}
    return {"t": 5.0, "what": what, **which, **more}


def good() -> History:
    """Four utterances of one client, two of them one sentence; a fault that was over at 11.5."""
    client = ClientHistory(name="client-0", session="s")
    client.said = [(float(word), word) for word in range(2, 18, 2)]
    client.events = [
        finalized(0, 200),
        result(0, 2, 4),
        result(1, kind="HELD"),
        result(2, 6, 8, 10, 12, joined=[1]),
        result(3, 14, 16),
    ]
    node = NodeHistory(node="node-0", slots=2)
    node.records = [
        job("assigned", 0, 2, 4),
        job("started", 0, at_once=1),
        job("assigned", 1, 6, 8),
        job("started", 1, at_once=2),
    ]
    struck = [Struck("kill", "node-1", 10.5, 11.5)]
    return History(name="kill", seed=1, clients=[client], nodes=[node], struck=struck)


def rules(history: History) -> set[str]:
    """The rules that are broken."""
    return {violation.rule for violation in validate(history)}


def test_a_good_history_has_nothing_wrong() -> None:
    assert validate(good()) == []


def test_a_job_may_bring_along_what_another_node_held() -> None:
    history = good()
    whole = job("assigned", 1, 2, 4, 6, 8, included=[0])
    history.nodes.append(NodeHistory("node-1", 2, [whole]))
    assert validate(history) == []


def events_of(history: History) -> list[Record]:
    return history.clients[0].events


def _index_twice(history: History) -> None:
    events_of(history).append(result(3))


def _hole(history: History) -> None:
    del events_of(history)[1]


def _out_of_order(history: History) -> None:
    events = events_of(history)
    events[3], events[4] = events[4], events[3]


def _cut_anew(history: History) -> None:
    events_of(history).append(finalized(0, 300))


def _index_used_again(history: History) -> None:
    history.nodes.append(NodeHistory("node-1", 2, [job("assigned", 0, 4, 6)]))


def _wrong_audio_brought_along(history: History) -> None:
    history.nodes.append(NodeHistory("node-1", 2, [job("assigned", 1, 2, 6, 8, included=[0])]))


def _lost_session(history: History) -> None:
    history.clients[0].lost = "UNREACHABLE: no gateway"


def _never_heard(history: History) -> None:
    history.clients[0].events = []


def _missing(history: History) -> None:
    events_of(history)[4] = missing(3, "JOB_FAILED")


def _word_lost(history: History) -> None:
    events_of(history)[4] = result(3, 16)


def _last_word_lost(history: History) -> None:
    events_of(history)[4] = result(3, 14)


def _word_twice(history: History) -> None:
    events_of(history)[4] = result(3, 12, 14, 16)


def _never_said(history: History) -> None:
    events_of(history)[4]["words"] = ["late"]


def _half_a_word(history: History) -> None:
    events_of(history)[4]["words"] = ["14", "16?"]


def _held_and_forgotten(history: History) -> None:
    events_of(history)[3] = result(2, 10, 12)


def _over_capacity(history: History) -> None:
    history.nodes[0].records.append(job("started", 2, at_once=3))


def _slot_leaked(history: History) -> None:
    history.leases_left = ["node-0: 0 reserved, 1 running"]


def _turn_elsewhere(history: History) -> None:
    events_of(history)[3]["node"] = "node-1"


def _never_again(history: History) -> None:
    history.clients[0].said.append((50.0, 18))
    history.struck = [Struck("kill", "node-1", 10.5, 49.0)]


def _partials_unasked(history: History) -> None:
    events_of(history).insert(1, {"t": 9.5, "what": "partial", "index": 0})


def _partials_too_often(history: History) -> None:
    history.clients[0].partial_interval_ms = 500
    # One second passes from the cut to the result.
    for _ in range(5):
        _partials_unasked(history)


def _waited_too_long(history: History) -> None:
    # The text of 2 and 4 came at second 10, six after its last word.
    history.stall_s = 5.0


def _bug_logged(history: History) -> None:
    history.logged = ["gateway-0: Traceback (most recent call last):"]


@pytest.mark.parametrize(
    ("spoil", "rule"),
    [
        (_index_twice, "each index once, in order"),
        (_hole, "each index once, in order"),
        (_out_of_order, "each index once, in order"),
        (_cut_anew, "one cut an index"),
        (_index_used_again, "one cut an index"),
        (_wrong_audio_brought_along, "one cut an index"),
        (_lost_session, "no session is lost"),
        (_never_heard, "no session is lost"),
        (_missing, "missing only where allowed"),
        (_word_lost, "no word is lost or repeated"),
        (_last_word_lost, "no word is lost or repeated"),
        (_word_twice, "no word is lost or repeated"),
        (_never_said, "no word is lost or repeated"),
        (_half_a_word, "no word is lost or repeated"),
        (_held_and_forgotten, "no word is lost or repeated"),
        (_held_and_forgotten, "a turn stays on its node"),
        (_over_capacity, "no node over its capacity"),
        (_slot_leaked, "all slots are back"),
        (_turn_elsewhere, "a turn stays on its node"),
        (_never_again, "everybody is heard again"),
        (_partials_unasked, "partial texts keep their interval"),
        (_partials_too_often, "partial texts keep their interval"),
        (_waited_too_long, "nobody waits too long"),
        (_bug_logged, "no bug is logged"),
    ],
)
def test_a_broken_promise_is_found(spoil: Callable[[History], None], rule: str) -> None:
    history = good()
    spoil(history)
    assert rule in rules(history)


@pytest.mark.parametrize(
    ("spoil", "excuses"),
    [
        (_lost_session, Excuses(sessions=frozenset({"UNREACHABLE"}))),
        (_missing, Excuses(missing=frozenset({"JOB_FAILED"}))),
        (_held_and_forgotten, Excuses(turns=ANY_NODE, held=True)),
        (_turn_elsewhere, Excuses(turns=ANY_NODE)),
        (_turn_elsewhere, Excuses(turns=frozenset({"node-0"}))),
        (_over_capacity, Excuses(capacity=True)),
    ],
)
def test_what_the_design_allows_is_no_violation(
    spoil: Callable[[History], None], excuses: Excuses
) -> None:
    history = good()
    spoil(history)
    history.excuses = excuses
    assert validate(history) == []


def test_an_excuse_for_what_is_held_excuses_no_other_word() -> None:
    history = good()
    _word_lost(history)
    history.excuses = Excuses(turns=ANY_NODE, held=True)
    assert rules(history) == {"no word is lost or repeated"}


def test_a_turn_that_may_move_must_not_lose_what_was_held() -> None:
    history = good()
    _held_and_forgotten(history)
    history.excuses = Excuses(turns=ANY_NODE)
    assert rules(history) == {"no word is lost or repeated"}


def test_recovery_counts_from_the_end_of_the_fault_and_a_stall_from_the_last_word() -> None:
    client = good().clients[0]
    assert recovery(client, 11.5) == pytest.approx(0.5)
    assert recovery(client, 60.0) is None
    # The text of 2 and 4 came at second 10, six after its last word.
    assert longest_stall(client) == pytest.approx(6.0)


def test_partials_at_their_interval_and_waits_within_the_bound_are_no_violation() -> None:
    history = good()
    history.clients[0].partial_interval_ms = 500
    for _ in range(4):
        _partials_unasked(history)
    history.stall_s = 7.0
    assert validate(history) == []


@pytest.mark.parametrize("spoil", [_turn_elsewhere, _held_and_forgotten])
def test_a_turn_that_breaks_is_a_violation_unless_its_own_node_was_struck(
    spoil: Callable[[History], None],
) -> None:
    history = good()
    spoil(history)
    history.excuses = Excuses(turns=frozenset({"node-1", "node-2"}), held=True)
    assert "a turn stays on its node" in rules(history)
    history.excuses = Excuses(turns=frozenset({"node-0"}), held=True)
    assert rules(history) == set()


@pytest.mark.parametrize("excuses", [Excuses(), Excuses(turns=ANY_NODE)])
def test_the_report_counts_turns_that_moved_or_broke_whether_they_are_excused_or_not(
    excuses: Excuses,
) -> None:
    whole, moved, broken = good(), good(), good()
    _turn_elsewhere(moved)
    _held_and_forgotten(broken)
    moved.excuses = broken.excuses = excuses
    report = Report()
    for history in (whole, moved, broken):
        report.add(history, [], {})
    assert "1 turns moved and 1 broken of 3" in report.totals()
    assert "| 1, 1 of 3 |" in report.markdown()


def test_the_report_counts_by_kind_of_client() -> None:
    history = good()
    other = ClientHistory(name="javascript-1", kind=JAVASCRIPT, said=[(1.0, 2)])
    other.events = [
        {"t": 9.0, "what": "reconnecting", "why": "cut"},
        result(0, 2),
        missing(1, "JOB_FAILED"),
    ]
    history.clients.append(other)
    report = Report()
    report.add(history, validate(history), {})
    python, javascript = report.kinds.values()
    assert (python.kind, python.sessions, python.utterances, python.violations) == (PYTHON, 1, 4, 0)
    assert (javascript.kind, javascript.utterances, javascript.missing) == (JAVASCRIPT, 2, 1)
    assert (javascript.reconnected, javascript.violations) == (1, 1)
    assert report.rows["kill"].of_javascript == 2
    assert "| JavaScript | 1 | 2 | 1 | 0 | 1 | 9.0 |" in report.markdown()


def struck(name: str, at: str) -> Excuses:
    """What a fault may cost once it has hit these."""
    fault = ALL[name](random.Random(1))
    fault.at = at
    return excuses_of([fault])


@pytest.mark.parametrize(
    ("name", "at", "may_break"),
    [
        ("kill -9 of a node", "node-1", {"node-1"}),
        ("pool services and a node away together", "pool-0, pool-1, node-3", {"node-3"}),
        ("half open: node and dispatcher", "node-2>dispatcher-0", {"node-2"}),
        ("pause of a dispatcher", "dispatcher-0", ANY_NODE),
        ("kill -9 of a dispatcher", "dispatcher-0", set()),
    ],
)
def test_a_fault_excuses_the_turns_of_the_nodes_that_it_struck(
    name: str, at: str, may_break: set[str]
) -> None:
    assert struck(name, at).turns == may_break


def test_faults_that_strike_several_at_once_are_drawn_alone() -> None:
    names = list(ALL)
    drawn = list(itertools.islice(draw(names, random.Random(1)), 3 * len(names)))
    pairs = {name for each in drawn if len(each) == 2 for name in each}
    assert {name for each in drawn if len(each) == 1 for name in each} == set(names)
    assert not any(ALL[name].is_alone for name in pairs)
    assert len(pairs) > 20
