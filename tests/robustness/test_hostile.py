"""What is validated of rounds with hostile peers: hand-made histories with one thing wrong."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.robustness.history import History, HostileHistory, Silence, Struck
from tests.robustness.hostile import HOSTILE_EXCUSES
from tests.robustness.test_validators import good, result, rules
from tests.robustness.traffic.watcher import CONTROL, silences
from tests.robustness.validate import validate
from tests.robustness.validate.hostile import MORE_MB, summary
from tests.support.records import Record


def attacked() -> History:
    """The good history with hostile peers who harmed nobody; node-1 was dead from 10.5 to 11.5."""
    history = good()
    history.hostile = HostileHistory(
        acts={"client: resume beyond what was said": 12, "node: many ids": 11},
        cycles={"client": 1, "node": 2, "web": 1, "room": 1},
        silences=[Silence("gateway-0", 5.0, 5.6, 0.4, 0.1)],
        memory_mb={"gateway-0": (70.0, 120.0), "redis": (2.0, 30.0)},
    )
    return history


def hostile(history: History) -> HostileHistory:
    assert history.hostile is not None
    return history.hostile


def _silent(history: History) -> None:
    hostile(history).silences.append(Silence("gateway-0", 20.0, 22.0, 1.8, 0.1))


def _silent_without_work(history: History) -> None:
    hostile(history).silences.append(Silence("gateway-0", 20.0, 27.0, 0.1, 0.1))


def _silent_after_a_pause(history: History) -> None:
    history.struck = [Struck("pause", "gateway-0, node-1", 10.5, 11.5)]
    hostile(history).silences.append(Silence("gateway-0", 10.6, 13.5, 2.9, 0.1))


def _grown(history: History) -> None:
    hostile(history).memory_mb["redis"] = (2.0, 3.0 + MORE_MB)


def _ejected(history: History) -> None:
    hostile(history).out.append((30.0, "node-0", "ejected"))


def _died(history: History) -> None:
    hostile(history).ended.append((30.0, "pool-1"))


def _idle(history: History) -> None:
    hostile(history).cycles = {"client": 1, "node": 0, "web": 1, "room": 1}


def _broke(history: History) -> None:
    hostile(history).broke.append("node: many ids: Traceback")


@pytest.mark.parametrize(
    ("spoil", "rule"),
    [
        (_silent, "no process is silent"),
        (_silent_without_work, "no process is silent"),
        (_silent_after_a_pause, "no process is silent"),
        (_grown, "memory is bounded"),
        (_ejected, "honest nodes stay in"),
        (_died, "no process ends"),
        (_idle, "hostile peers are at work"),
        (_broke, "hostile peers are at work"),
    ],
)
def test_what_hostile_peers_must_not_cost_is_found(
    spoil: Callable[[History], None], rule: str
) -> None:
    history = attacked()
    assert validate(history) == []
    spoil(history)
    assert rules(history) == {rule}


@pytest.mark.parametrize(
    ("silence", "why"),
    [
        (Silence("gateway-0", 20.0, 23.0, 1.2, 2.5), "an idle process was silent, too"),
        (Silence("gateway-0", 20.0, 23.0, 0.4, 0.1), "it waited for a CPU"),
        (Silence("dispatcher-0", 10.6, 11.9, 1.2, 0.1), "a fault had stopped it until 11.5"),
    ],
)
def test_silence_that_is_not_its_own_doing_is_no_violation(silence: Silence, why: str) -> None:
    history = attacked()
    history.struck = [Struck("pause", "dispatcher-0", 10.5, 11.5)]
    hostile(history).silences.append(silence)
    assert validate(history) == [], why


def test_what_another_fault_may_do_is_no_violation() -> None:
    history = attacked()
    hostile(history).ended.append((11.0, "node-1"))
    hostile(history).out += [(11.0, "node-1", "offline"), (13.0, "node-0", "offline")]
    assert validate(history) == []


def test_only_turns_of_the_hostile_node_may_go_on_elsewhere() -> None:
    history = attacked()
    history.excuses = HOSTILE_EXCUSES
    events = history.clients[0].events
    events[2] = result(1, kind="HELD", node="hostile-0")
    assert validate(history) == []
    events[2] = result(1, kind="HELD", node="node-1")
    assert rules(history) == {"a turn stays on its node"}


@pytest.mark.parametrize("joined", [[0, 1], [1]])
def test_a_turn_that_the_hostile_node_began_may_leave_an_honest_node_as_well(
    joined: list[int],
) -> None:
    """The honest node has no audio of the hostile one, so it cannot join all of it."""
    history = attacked()
    history.excuses = HOSTILE_EXCUSES
    events = history.clients[0].events
    events[1] = result(0, kind="HELD", node="hostile-0")
    events[3] = result(2, 2, 4, 6, 8, 10, 12, joined=joined, node="node-1")
    assert ("a turn stays on its node" in rules(history)) == (0 not in joined)


def test_the_summary_names_the_worst() -> None:
    history = attacked()
    assert summary(history) == (
        "hostile: 23 acts of 2 kinds; longest silence 0.50 s (gateway-0, 0.40 s at work);"
        " most memory +50 MB (gateway-0)"
    )


def check(who: str, t: float, took: float, **more: Any) -> Record:
    """A health check as the watcher writes it down."""
    return {"t": t, "who": who, "took": took, "ok": True, "cpu_s": 0.0, **more}


def test_a_silence_lasts_from_the_first_check_without_an_answer_to_the_next_answer() -> None:
    records = [
        check("gateway-0", 1.0, 0.01),
        check("gateway-0", 1.1, 0.4, ok=False, cpu_s=0.3),
        check("gateway-0", 1.6, 0.5, cpu_s=0.2),
        check("gateway-0", 2.2, 0.1),
        check("pool-0", 1.0, 0.2),
        check(CONTROL, 0.5, 0.45),
        check(CONTROL, 1.05, 0.1),
        check(CONTROL, 1.3, 0.3),
        check(CONTROL, 2.2, 0.9),
    ]
    (silence,) = silences(records)
    assert (silence.process, silence.since) == ("gateway-0", 1.1)
    assert (silence.until, silence.cpu_s) == (pytest.approx(2.1), pytest.approx(0.5))
    assert silence.control_s == 0.3
