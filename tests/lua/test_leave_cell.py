"""A node that leaves its cell: it finishes what it has, and what must be on it, and goes."""

from lingua_scheduler.services.runtime.redis import script_calls

from .scripts import BY_MAX_DURATION, BY_PREFERRED, LEAVING, MAX_DURATION, Refused, Scripts


def leave(scripts: Scripts, *nodes: str, most: int = 100) -> list[str]:
    """Which of the nodes have left."""
    left = scripts.call(*script_calls.leave_cell(most=most, node_ids=nodes))
    return [node.decode() for node in left]


def test_an_idle_node_gets_no_more_jobs_and_must_register_again(scripts: Scripts) -> None:
    epoch = scripts.join("n1")
    assert leave(scripts, "n1", "unknown") == ["n1"]
    assert isinstance(scripts.select(), Refused)
    assert isinstance(scripts.reserve("n1", "j1"), Refused)
    assert scripts.beat(("n1", epoch)) == [("n1", "register_again")]
    assert scripts.known("n1").health == LEAVING


def test_a_turn_waits_for_its_node_to_register_in_another_cell(scripts: Scripts) -> None:
    scripts.join("n1", most=8)
    scripts.place("j1", session="s", utterance=1, reason=MAX_DURATION)
    scripts.commit("n1", "j1")
    scripts.complete("n1", "j1")
    assert leave(scripts, "n1") == ["n1"]
    refused = scripts.allocate("j2", session="s", utterance=2, may_wait=True)
    assert isinstance(refused, Refused)
    assert refused.reason == "BOUND_NODE_FULL"
    # Or in the same one, if that is ready again.
    scripts.join("n1", most=8)
    assert scripts.place("j2", session="s", utterance=2).path == BY_MAX_DURATION


def test_a_busy_node_gets_only_jobs_that_must_have_it(scripts: Scripts) -> None:
    scripts.join("n1", most=8)
    scripts.place("j1", session="s", utterance=1, reason=MAX_DURATION)
    assert leave(scripts, "n1") == []

    assert isinstance(scripts.select(), Refused)
    turn = scripts.place("j2", session="s", utterance=2)
    assert (turn.node, turn.path) == ("n1", BY_MAX_DURATION)
    assert scripts.place("j3", preferred="n1").path == BY_PREFERRED


def test_a_heartbeat_takes_the_mark_of_a_busy_node_away(scripts: Scripts) -> None:
    epoch = scripts.join("n1", most=8)
    scripts.place("j1")
    leave(scripts, "n1")
    assert isinstance(scripts.select(), Refused)
    assert scripts.beat(("n1", epoch)) == []
    assert not isinstance(scripts.select(), Refused)


def test_the_mark_ends_no_drain_of_an_operator(scripts: Scripts) -> None:
    epoch = scripts.join("n1", most=8)
    scripts.place("j1")
    scripts.set_health("n1", 3, by_operator=True)
    leave(scripts, "n1")
    scripts.beat(("n1", epoch))
    assert scripts.known("n1").drained


def test_leases_that_have_ended_hold_no_node_back(scripts: Scripts) -> None:
    scripts.join("n1", most=8)
    scripts.place("j1")
    assert leave(scripts, "n1") == []
    scripts.advance(scripts.limits.reservation_ttl_ms + 1)
    assert leave(scripts, "n1") == ["n1"]


def test_only_so_many_nodes_leave_at_once(scripts: Scripts) -> None:
    for node in ("n1", "n2", "n3"):
        scripts.join(node)
    assert leave(scripts, "n1", "n2", "n3", most=2) == ["n1", "n2"]
