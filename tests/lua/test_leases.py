"""Leases: how a slot is taken, kept, freed and never lost."""

import pytest

from .scripts import BY_NAME, OFFLINE, Held, Placed, Refused, Scripts

LEASE_MS = 60_000
TTL_MS = 5_000


@pytest.fixture
def one(scripts: Scripts) -> Scripts:
    """One node with one slot."""
    scripts.join("n1", most=1)
    return scripts


@pytest.fixture
def two(scripts: Scripts) -> Scripts:
    """Two nodes with two slots each."""
    scripts.join("n1")
    scripts.join("n2")
    return scripts


def fail(scripts: Scripts, job: str, node: str = "n1") -> None:
    """One failed job on the node."""
    scripts.reserve(node, job)
    scripts.commit(node, job)
    scripts.complete(node, job, outcome="failed")


def test_a_reservation_becomes_a_running_lease_and_then_a_free_slot(one: Scripts) -> None:
    placed = one.place("j1")
    assert one.reserved("n1") == {"j1:1": one.now + TTL_MS}
    assert placed.ends == one.now + TTL_MS
    assert one.commit("n1", "j1") == ("committed", one.now + LEASE_MS)
    assert (one.reserved("n1"), one.running("n1")) == ({}, {"j1:1": one.now + LEASE_MS})
    assert one.job("j1")["state"] == "acked"
    assert one.complete("n1", "j1") == ("completed", "done")
    assert (one.leases("n1"), one.known("n1").used) == ({}, 0)


def test_a_node_never_gets_more_than_it_can_hold(scripts: Scripts) -> None:
    scripts.join("n1", most=3)
    answers = [scripts.allocate(f"j{number}") for number in range(5)]
    assert [isinstance(answer, Placed) for answer in answers] == [True] * 3 + [False] * 2
    assert answers[4] == Refused("ALL_CANDIDATES_FULL_OR_FAILED", {"full": 1, "drawn": 1})


def test_a_reservation_that_nobody_commits_frees_its_slot(one: Scripts) -> None:
    one.place("j1")
    one.advance(TTL_MS - 1)
    assert isinstance(one.allocate("j2"), Refused)
    one.advance(1)
    assert one.place("j2").node == "n1"


def test_a_running_lease_that_nobody_renews_frees_its_slot(one: Scripts) -> None:
    one.place("j1")
    one.commit("n1", "j1")
    one.advance(LEASE_MS - 1)
    one.beat(("n1", one.known("n1").epoch))
    assert isinstance(one.allocate("j2"), Refused)
    one.advance(1)
    assert one.place("j2").node == "n1"


def test_a_repeated_allocation_answers_the_same_and_takes_no_second_slot(two: Scripts) -> None:
    first = two.place("j1")
    again = two.place("j1")
    assert again == first._replace(existing=True)
    assert len(two.leases("n1") | two.leases("n2")) == 1


def test_a_repeated_commit_says_that_the_lease_runs(one: Scripts) -> None:
    one.place("j1")
    ends = one.commit("n1", "j1")[1]
    one.advance(1_000)
    assert one.commit("n1", "j1") == ("already", ends)


def test_a_late_commit_takes_the_node_again_where_it_has_room(one: Scripts) -> None:
    one.place("j1")
    one.advance(TTL_MS)
    assert one.commit("n1", "j1") == ("committed_late", one.now + LEASE_MS)
    assert one.known("n1").used == 1


def test_a_late_commit_finds_no_room_on_a_full_node(one: Scripts) -> None:
    one.place("j1")
    one.advance(TTL_MS)
    one.place("j2")
    assert one.commit("n1", "j1") == ("no_room", 0)
    assert set(one.leases("n1")) == {"j2:1"}


def test_a_commit_on_a_node_that_the_store_has_lost_is_recorded_until_its_beat_brings_the_lease(
    one: Scripts,
) -> None:
    one.place("j1")
    one.remove("n1")
    assert one.commit("n1", "j1")[0] == "committed_late"
    one.join("n1", running=["j1:1"])
    assert set(one.running("n1")) == {"j1:1"}


def test_a_late_commit_is_superseded_once_another_attempt_runs(two: Scripts) -> None:
    first = two.place("j1")
    second = two.place("j1", 2, exclude=[first.node])
    assert two.commit(second.node, "j1", 2)[0] == "committed"
    assert two.commit(first.node, "j1", 1) == ("superseded", 0)
    assert two.job("j1")["winner"] == "2"


def test_a_commit_of_a_job_that_is_over_is_superseded(two: Scripts) -> None:
    first = two.place("j1")
    second = two.place("j1", 2, exclude=[first.node])
    two.commit(second.node, "j1", 2)
    two.complete(second.node, "j1", 2)
    assert two.commit(first.node, "j1", 1) == ("superseded", 0)
    assert two.commit(second.node, "j1", 2) == ("already", 0)


def test_a_commit_from_another_node_than_the_attempts_is_superseded(two: Scripts) -> None:
    first = two.place("j1")
    other = {"n1": "n2", "n2": "n1"}[first.node]
    assert two.commit(other, "j1") == ("superseded", 0)


def test_an_attempt_that_was_given_up_comes_back_while_nothing_took_its_place(
    two: Scripts,
) -> None:
    first = two.place("j1")
    two.release(first.node, "j1", fault=True)
    assert two.commit(first.node, "j1")[0] == "committed_late"
    assert two.job("j1")["state"] == "acked"


def test_an_attempt_that_was_given_up_stays_so_once_another_took_its_place(two: Scripts) -> None:
    first = two.place("j1")
    two.release(first.node, "j1", fault=True)
    two.place("j1", 2, exclude=[first.node])
    assert two.commit(first.node, "j1") == ("superseded", 0)


def test_a_commit_that_comes_after_the_end_does_not_bring_the_attempt_back(one: Scripts) -> None:
    one.place("j1")
    one.commit("n1", "j1")
    one.complete("n1", "j1", outcome="failed")
    assert one.commit("n1", "j1") == ("superseded", 0)
    assert one.leases("n1") == {}


def test_a_release_frees_the_slot_once(one: Scripts) -> None:
    one.place("j1")
    assert one.release("n1", "j1") == "released"
    assert one.release("n1", "j1") == "nothing"
    assert one.known("n1").used == 0
    assert one.job("j1")["state"] == "retrying"


def test_a_release_of_what_is_gone_does_nothing(one: Scripts) -> None:
    assert one.release("n1", "never") == "nothing"
    assert one.release("stranger", "never") == "nothing"
    one.place("j1")
    one.advance(TTL_MS)
    one.place("j2")
    assert one.release("n1", "j1") == "nothing"
    assert set(one.leases("n1")) == {"j2:1"}


def test_a_release_leaves_a_committed_attempt_running(one: Scripts) -> None:
    one.place("j1")
    one.commit("n1", "j1")
    assert one.release("n1", "j1", final="failed") == "running"
    assert (one.job("j1")["state"], set(one.running("n1"))) == ("acked", {"j1:1"})


def test_a_release_can_end_the_job(one: Scripts) -> None:
    one.place("j1")
    one.release("n1", "j1", final="cancelled")
    answer = one.place("j1", 2)
    assert (answer.existing, answer.state, answer.ends) == (True, "cancelled", 0)


def test_a_fault_of_a_release_counts_once(one: Scripts) -> None:
    one.place("j1")
    for _ in range(3):
        one.release("n1", "j1", fault=True)
    assert one.known("n1").failures == 1


def test_a_release_without_a_fault_does_not_count(one: Scripts) -> None:
    one.place("j1")
    one.release("n1", "j1")
    assert one.known("n1").failures == 0


def test_an_attempt_that_was_never_committed_can_be_completed(one: Scripts) -> None:
    """Where acknowledgement and result come together, one call says both."""
    one.join("n1", most=2)
    one.place("j1")
    one.place("j2")
    assert one.complete("n1", "j1") == ("completed", "done")
    assert (set(one.leases("n1")), one.known("n1").used) == ({"j2:1"}, 1)
    record = one.job("j1")
    assert (record["state"], record["winner"], record["1:state"]) == ("done", "1", "done")
    # Whatever comes later, or once more, frees nothing and changes nothing.
    assert one.complete("n1", "j1") == ("already", "done")
    assert one.commit("n1", "j1") == ("already", 0)
    assert one.release("n1", "j1") == "nothing"
    assert (set(one.leases("n1")), one.known("n1").used) == ({"j2:1"}, 1)
    assert one.job("j1") == record


def test_a_repeated_end_counts_once(one: Scripts) -> None:
    one.place("j1")
    one.commit("n1", "j1")
    assert one.complete("n1", "j1", outcome="failed") == ("completed", "retrying")
    assert one.complete("n1", "j1", outcome="failed") == ("already", "retrying")
    assert one.known("n1").failures == 1


def test_an_end_that_another_node_reports_counts_nothing(two: Scripts) -> None:
    first = two.place("j1")
    other = {"n1": "n2", "n2": "n1"}[first.node]
    for _ in range(2):
        assert two.complete(other, "j1", outcome="failed") == ("superseded", "reserved")
    assert two.known(other).failures == 0


def test_the_first_result_finishes_the_job_and_the_second_is_dropped(two: Scripts) -> None:
    first = two.place("j1")
    second = two.place("j1", 2, exclude=[first.node])
    two.commit(second.node, "j1", 2)
    assert two.complete(first.node, "j1", 1) == ("completed", "done")
    assert two.complete(second.node, "j1", 2) == ("superseded", "done")
    assert two.job("j1")["winner"] == "1"
    assert two.leases("n1") | two.leases("n2") == {}


def test_a_result_of_an_attempt_that_was_given_up_still_finishes_the_job(one: Scripts) -> None:
    one.place("j1")
    one.release("n1", "j1", fault=True)
    assert one.complete("n1", "j1") == ("completed", "done")


@pytest.mark.parametrize("outcome", ["failed", "timed_out", "cancelled"])
def test_an_end_without_result_lets_another_attempt_follow(two: Scripts, outcome: str) -> None:
    first = two.place("j1")
    two.commit(first.node, "j1")
    assert two.complete(first.node, "j1", outcome=outcome) == ("completed", "retrying")
    again = two.place("j1", 2)
    assert (again.existing, again.attempt) == (False, 2)


@pytest.mark.parametrize("final", ["failed", "cancelled"])
def test_an_end_without_result_can_end_the_job(one: Scripts, final: str) -> None:
    one.place("j1")
    one.commit("n1", "j1")
    assert one.complete("n1", "j1", outcome="failed", final=final) == ("completed", final)
    assert one.place("j1", 2).existing


def test_three_failures_in_a_row_eject_a_node(one: Scripts) -> None:
    one.with_limits(eject_max_share=1)
    for number in range(2):
        fail(one, f"j{number}")
    assert one.place("still").node == "n1"
    one.release("n1", "still")
    fail(one, "j2")
    assert one.known("n1").ejected_until_ms == one.now + 30_000
    refused = one.allocate("j3")
    assert refused == Refused("ALL_CANDIDATES_FULL_OR_FAILED", {"ejected": 1, "drawn": 1})


def test_failures_of_one_session_alone_eject_no_node(one: Scripts) -> None:
    for number in range(9):
        one.place(f"j{number}", session="s")
        one.complete("n1", f"j{number}", outcome="failed")
    assert (one.known("n1").failures, one.known("n1").ejected_until_ms) == (1, 0)
    # The same id of another tenant is another session.
    for number, tenant in enumerate(("t2", "t1")):
        one.place(f"k{number}", session="s", tenant=tenant)
        one.release("n1", f"k{number}", fault=True)
    assert one.known("n1").ejected_until_ms > one.now


def test_jobs_that_a_node_calls_bad_do_not_count_against_it(one: Scripts) -> None:
    for number in range(9):
        one.place(f"j{number}", session=f"s{number}")
        one.complete("n1", f"j{number}", outcome="failed", final="failed", bad_job=True)
    assert one.known("n1").failures == 0


def test_a_node_that_is_alone_is_chosen_though_it_is_ejected(one: Scripts) -> None:
    for number in range(3):
        fail(one, f"j{number}")
    assert one.known("n1").ejected_until_ms > one.now
    assert one.place("j9").node == "n1"


def test_a_success_between_failures_starts_the_count_anew(one: Scripts) -> None:
    for number in range(6):
        fail(one, f"j{number}")
        if number % 2:
            one.reserve("n1", f"ok{number}")
            one.complete("n1", f"ok{number}")
    assert one.known("n1").ejected_until_ms == 0


def test_an_ejected_node_is_tried_again_after_its_time_and_then_longer_away(one: Scripts) -> None:
    away = []
    for number in range(3):
        fail(one, f"j{number}")
    for number in range(5):
        away.append(one.known("n1").ejected_until_ms - one.now)
        one.advance(away[-1])
        one.beat(("n1", one.known("n1").epoch))
        assert one.place(f"trial{number}").node == "n1"
        one.commit("n1", f"trial{number}")
        one.complete("n1", f"trial{number}", outcome="failed")
    assert away == [30_000, 60_000, 120_000, 240_000, 300_000]


def test_a_success_ends_an_ejection_at_once(one: Scripts) -> None:
    one.with_limits(eject_max_share=1)
    one.place("running")
    one.commit("n1", "running")
    for number in range(3):
        one.complete("n1", f"j{number}", outcome="failed")
    assert isinstance(one.allocate("j9"), Refused)
    one.complete("n1", "running")
    assert one.known("n1").ejected_until_ms == 0
    assert one.place("j9").node == "n1"


def test_a_cancelled_attempt_counts_neither_way(one: Scripts) -> None:
    fail(one, "j1")
    one.place("j2")
    one.commit("n1", "j2")
    one.complete("n1", "j2", outcome="cancelled")
    assert one.known("n1").failures == 1


def test_reserve_takes_a_slot_on_the_named_node_and_can_be_repeated(one: Scripts) -> None:
    held = one.reserve("n1", "j1")
    assert isinstance(held, Held)
    assert (held.existing, held.node, held.ends) == (False, "n1", one.now + TTL_MS)
    assert one.reserve("n1", "j1") == held._replace(existing=True)
    assert one.job("j1")["1:path"] == str(BY_NAME)
    assert one.reserve("n1", "j2") == Refused("ALL_CANDIDATES_FULL_OR_FAILED", {"full": 1})


def test_reserve_refuses_a_node_that_is_unknown_or_away(one: Scripts) -> None:
    assert one.reserve("stranger", "j1") == Refused("NODE_NOT_FOUND", {})
    one.set_health("n1", OFFLINE)
    refused = one.reserve("n1", "j1")
    assert refused == Refused("ALL_CANDIDATES_FULL_OR_FAILED", {"unavailable": 1})


def test_reserve_does_not_bring_back_a_job_that_is_over(one: Scripts) -> None:
    one.reserve("n1", "j1")
    one.complete("n1", "j1")
    held = one.reserve("n1", "j1")
    assert isinstance(held, Held)
    assert (held.existing, held.ends, one.leases("n1")) == (True, 0, {})
    assert one.job("j1")["state"] == "done"


def test_reserve_does_not_go_back_to_an_earlier_attempt(two: Scripts) -> None:
    first = two.place("j1")
    two.release(first.node, "j1")
    two.place("j1", 2)
    held = two.reserve(first.node, "j1", 1)
    assert isinstance(held, Held)
    assert (held.existing, held.ends) == (True, 0)
    assert two.job("j1")["attempt"] == "2"


def test_the_record_of_a_job_goes_after_its_time(one: Scripts) -> None:
    one.place("j1")
    one.complete("n1", "j1")
    one.advance(599_999)
    assert one.job("j1")["state"] == "done"
    one.advance(1)
    assert one.job("j1") == {}


def test_the_slot_of_an_attempt_that_the_node_may_run_is_not_given_away(one: Scripts) -> None:
    one.reserve("n1", "j1")
    assert one.release("n1", "j1", may_run=True) == "left"
    assert one.job("j1")["1:state"] == "released"
    assert one.known("n1").used == 1
    one.advance(one.limits.reservation_ttl_ms + 1)
    assert one.place("j2").node == "n1"


def test_a_node_that_comes_back_without_such_an_attempt_has_its_slot_free(one: Scripts) -> None:
    one.reserve("n1", "j1")
    one.release("n1", "j1", may_run=True)
    one.join("n1", stream="s2", most=1)
    assert one.known("n1").used == 0


def test_a_node_that_runs_such_an_attempt_is_told_to_stop_and_its_slot_is_free(
    one: Scripts,
) -> None:
    one.reserve("n1", "j1")
    one.release("n1", "j1", may_run=True)
    epoch = one.known("n1").epoch
    assert one.beat(("n1", epoch, ["j1:1"])) == [("n1", "not_renewed", "j1:1")]
    assert one.known("n1").used == 0
