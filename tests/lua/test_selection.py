"""Selection: who is drawn, who is passed over, and what a refusal says."""

from collections.abc import Callable
from typing import Any

import pytest

from .scripts import (
    BY_FALLBACK,
    BY_POOL,
    BY_PREFERRED,
    DEGRADED,
    DRAINING,
    OFFLINE,
    TONE,
    Chosen,
    Placed,
    Refused,
    Registered,
    Scripts,
    able,
)

ALL_FULL = "ALL_CANDIDATES_FULL_OR_FAILED"


def chosen(scripts: Scripts, **criteria: Any) -> Chosen:
    answer = scripts.select(**criteria)
    assert isinstance(answer, Chosen), answer
    return answer


def choices(scripts: Scripts, times: int = 60, **criteria: Any) -> set[str]:
    """Every node that comes up in so many draws."""
    return {chosen(scripts, **criteria).node for _ in range(times)}


def fill(scripts: Scripts, node: str) -> None:
    live = scripts.known(node)
    for number in range(live.max_concurrent_jobs - live.used):
        scripts.reserve(node, f"fill-{node}-{number}")


@pytest.fixture
def three(scripts: Scripts) -> Scripts:
    for node in ("n1", "n2", "n3"):
        scripts.join(node)
    return scripts


def test_select_chooses_and_changes_nothing(three: Scripts) -> None:
    keys = sorted(three.client.keys(f"{three.prefix}:*"))
    assert chosen(three, session="s").path == BY_POOL
    assert sorted(three.client.keys(f"{three.prefix}:*")) == keys


def test_a_placement_says_where_the_node_is(scripts: Scripts) -> None:
    epoch = scripts.join("n1", owner="d7", address="10.0.0.7:50053")
    placed = scripts.place("j1")
    assert (placed.epoch, placed.owner, placed.address) == (epoch, "d7", "10.0.0.7:50053")


@pytest.mark.parametrize(
    ("word", "fate"),
    [
        ("not_ready", lambda scripts: scripts.set_health("n1", DEGRADED)),
        ("not_ready", lambda scripts: scripts.set_health("n1", DRAINING)),
        ("not_ready", lambda scripts: scripts.set_health("n1", OFFLINE)),
        ("not_ready", lambda scripts: scripts.set_health("n1", DRAINING, by_operator=True)),
        ("not_ready", lambda scripts: scripts.remove_step("n1", step=1)),
        ("stale", lambda scripts: scripts.advance(15_000)),
        ("overloaded", lambda scripts: scripts.beat(("n1", scripts.known("n1").epoch), load=0.91)),
        ("full", lambda scripts: fill(scripts, "n1")),
    ],
)
def test_a_node_that_may_not_be_chosen_is_passed_over_and_counted(
    scripts: Scripts, word: str, fate: Callable[[Scripts], object]
) -> None:
    scripts.join("n1")
    fate(scripts)
    assert scripts.allocate("j1") == Refused(ALL_FULL, {word: 1, "drawn": 1})
    scripts.join("n2")
    assert choices(scripts, 20) == {"n2"}


def test_an_operators_drain_outlives_what_the_node_says_and_a_reconnect(scripts: Scripts) -> None:
    epoch = scripts.join("n1")
    scripts.set_health("n1", DRAINING, by_operator=True)
    scripts.beats([("n1", epoch, 1, 0.0, [])])
    scripts.join("n1", stream="s2")
    assert isinstance(scripts.select(), Refused)
    scripts.set_health("n1", 1, by_operator=True)
    assert chosen(scripts).node == "n1"


def test_a_drain_records_when_it_began_and_how_many_slots_were_taken(scripts: Scripts) -> None:
    def progress() -> list[bytes | None]:
        key = scripts.key("node", "n1")
        return list(scripts.client.hmget(key, "drained_ms", "drained_used"))

    scripts.join("n1", most=3)
    scripts.allocate("j1")
    scripts.advance(scripts.limits.reservation_ttl_ms)  # that lease has ended
    scripts.allocate("j2")
    scripts.allocate("j3")
    assert progress() == [None, None]
    began = str(scripts.now).encode()
    scripts.set_health("n1", DRAINING, by_operator=True)
    assert progress() == [began, b"2"]
    scripts.complete("n1", "j2")
    scripts.advance(5)
    scripts.set_health("n1", DRAINING, by_operator=True)
    assert progress() == [began, b"2"]
    scripts.set_health("n1", 1, by_operator=True)
    assert progress() == [None, None]
    scripts.set_health("n1", DRAINING)
    assert progress() == [None, None]
    scripts.set_health("n1", DRAINING, by_operator=True)
    assert progress() == [str(scripts.now).encode(), b"1"]


def test_a_node_at_the_load_threshold_is_still_chosen(scripts: Scripts) -> None:
    scripts.join("n1", load=0.9)
    assert chosen(scripts).node == "n1"


def test_the_least_loaded_node_is_taken(three: Scripts) -> None:
    three.reserve("n1", "a")
    three.reserve("n3", "b")
    assert choices(three, 20) == {"n2"}


def test_load_is_what_is_used_of_what_there_is(scripts: Scripts) -> None:
    scripts.join("small", most=2)
    scripts.join("large", most=10)
    scripts.reserve("small", "a")
    for number in range(4):
        scripts.reserve("large", f"b{number}")
    assert choices(scripts, 20) == {"large"}


def test_among_equal_loads_the_one_heard_of_lately_is_taken(three: Scripts) -> None:
    three.advance(6_000)
    three.beat(("n2", three.known("n2").epoch))
    assert choices(three, 20) == {"n2"}


def test_a_node_of_the_asking_instance_is_taken_if_it_is_about_as_idle(scripts: Scripts) -> None:
    for node, owner in (("n1", "d1"), ("n2", "d2"), ("n3", "d2")):
        scripts.join(node, owner=owner)
    assert choices(scripts, instance="d1") == {"n1"}
    assert choices(scripts, instance="d2") == {"n2", "n3"}
    assert choices(scripts, instance="d3") == {"n1", "n2", "n3"}
    assert choices(scripts) == {"n1", "n2", "n3"}
    scripts.reserve("n1", "busy")
    assert choices(scripts, instance="d1") == {"n2", "n3"}


@pytest.mark.parametrize(
    ("slots", "near", "others", "is_taken"),
    [(4, 2, 1, True), (4, 3, 1, False), (4, 1, 0, True), (3, 2, 1, True), (3, 1, 0, False)],
)
def test_a_node_of_the_asking_instance_may_have_one_job_more_than_the_least_loaded(
    scripts: Scripts, slots: int, near: int, others: int, is_taken: bool
) -> None:
    for node, owner, jobs in (("n1", "d1", near), ("n2", "d2", others), ("n3", "d2", others)):
        scripts.join(node, owner=owner, most=slots)
        for number in range(jobs):
            scripts.reserve(node, f"busy-{node}-{number}")
    assert choices(scripts, instance="d1") == ({"n1"} if is_taken else {"n2", "n3"})


def test_excluded_nodes_are_not_chosen(three: Scripts) -> None:
    assert choices(three, exclude=["n1", "n3"]) == {"n2"}
    refused = three.select(exclude=["n1", "n2", "n3"])
    assert refused == Refused(ALL_FULL, {"excluded": 3, "drawn": 3})


def test_the_preferred_node_is_taken_before_the_draw(three: Scripts) -> None:
    three.reserve("n2", "busy")
    answer = chosen(three, preferred="n2")
    assert (answer.node, answer.path) == ("n2", BY_PREFERRED)


@pytest.mark.parametrize("strict", [False, True])
def test_a_preferred_node_that_is_not_capable_is_refused(scripts: Scripts, strict: bool) -> None:
    scripts.join("n1")
    scripts.join("n2", able(asr=["en"]))
    for node in ("n2", "stranger"):
        refused = scripts.select(preferred=node, strict=strict)
        assert refused == Refused("PREFERRED_NODE_NOT_CAPABLE", {})


def test_a_preferred_node_without_room_is_fallen_back_from_unless_strict(three: Scripts) -> None:
    fill(three, "n2")
    assert choices(three, preferred="n2") == {"n1", "n3"}
    assert three.select(preferred="n2", strict=True) == Refused(ALL_FULL, {"full": 1, "drawn": 1})
    three.set_health("n2", OFFLINE)
    refused = three.select(preferred="n2", strict=True)
    assert refused == Refused(ALL_FULL, {"unavailable": 1, "drawn": 1})


def test_a_preferred_node_that_is_excluded_is_not_taken(three: Scripts) -> None:
    assert choices(three, preferred="n2", exclude=["n2"]) == {"n1", "n3"}
    refused = three.select(preferred="n2", strict=True, exclude=["n2"])
    assert refused == Refused(ALL_FULL, {"excluded": 1, "drawn": 1})


def test_required_stages_must_be_offered(scripts: Scripts) -> None:
    scripts.join("plain")
    assert scripts.select(stages=TONE) == Refused("NO_CAPABLE_NODE", {"stage": 1, "drawn": 1})
    scripts.join("tonal", able(stages=0b11111))
    assert choices(scripts, stages=TONE) == {"tonal"}
    fill(scripts, "tonal")
    refused = scripts.select(stages=TONE)
    assert refused == Refused(ALL_FULL, {"stage": 1, "full": 1, "drawn": 2})


def test_directions_are_different_pools(scripts: Scripts) -> None:
    scripts.join("n1", able(asr=["zh"], tts=["en"]))
    assert chosen(scripts).node == "n1"
    assert scripts.select(src="en", tgt="zh") == Refused("NO_CAPABLE_NODE", {})


def test_semantic_repair_is_a_hard_gate(scripts: Scripts) -> None:
    scripts.join("n1", able(asr=["zh", "en"], semantic=["en"]))
    assert scripts.select(src="zh", tgt="en") == Refused("NO_CAPABLE_NODE", {})
    assert chosen(scripts, src="en", tgt="zh").node == "n1"


def test_text_jobs_draw_from_explicit_pairs_and_any_to_any_together(scripts: Scripts) -> None:
    scripts.join("explicit", able(asr=["zh"], tts=[], nmt=["zh:fr"]))
    scripts.join("any", able(asr=["zh"], tts=[]))
    scripts.join("elsewhere", able(asr=["zh"], tts=["fr"], nmt=["zh:en"]))
    assert choices(scripts, tgt="fr", text=True) == {"explicit", "any"}
    assert choices(scripts, tgt="en", text=True) == {"any", "elsewhere"}
    assert choices(scripts, tgt="sw", text=True) == {"any"}
    assert scripts.select(tgt="fr") == Refused("NO_CAPABLE_NODE", {})


def test_a_preferred_node_of_either_text_pool_is_capable(scripts: Scripts) -> None:
    scripts.join("explicit", able(asr=["zh"], tts=[], nmt=["zh:fr"]))
    scripts.join("any", able(asr=["zh"], tts=[]))
    for node in ("explicit", "any"):
        assert chosen(scripts, tgt="fr", text=True, preferred=node).node == node


def test_a_node_on_its_way_into_the_pools_is_found_by_capability(scripts: Scripts) -> None:
    assert isinstance(scripts.register("n1"), Registered)
    assert isinstance(scripts.register("wrong", able(asr=["en"])), Registered)
    assert isinstance(scripts.register("mute", able(tts=[])), Registered)
    for criteria in ({}, {"tgt": "zh"}, {"tgt": "fr", "text": True, "exclude": ["mute"]}):
        answer = chosen(scripts, **criteria)
        assert (answer.node, answer.path) == ("n1", BY_FALLBACK)
    assert scripts.select(src="fr") == Refused("NO_CAPABLE_NODE", {})


def test_explicit_pairs_count_in_the_fallback_too(scripts: Scripts) -> None:
    scripts.register("n1", able(asr=["zh"], tts=["en", "fr"], nmt=["zh:fr"]))
    assert chosen(scripts, tgt="fr").node == "n1"
    assert scripts.select(tgt="en") == Refused("NO_CAPABLE_NODE", {})


def test_a_pool_with_members_is_not_fallen_back_from(scripts: Scripts) -> None:
    scripts.join("n1", most=1)
    scripts.register("n2")
    fill(scripts, "n1")
    assert scripts.select() == Refused(ALL_FULL, {"full": 1, "drawn": 1})


def test_without_any_node_nothing_is_capable(scripts: Scripts) -> None:
    assert scripts.allocate("j1") == Refused("NO_CAPABLE_NODE", {})
    assert scripts.job("j1") == {}


def test_a_draw_looks_at_no_more_than_sample_k_of_a_shard(scripts: Scripts) -> None:
    for number in range(30):
        scripts.join(f"n{number}", most=1)
        fill(scripts, f"n{number}")
    scripts.with_limits(sample_k=7)
    assert scripts.select() == Refused(ALL_FULL, {"full": 7, "drawn": 7})


def test_a_draw_goes_on_to_other_shards_when_one_has_no_room(scripts: Scripts) -> None:
    scripts.with_limits(pool_size=2)
    for number in range(4):
        scripts.join(f"n{number}", most=1)
    free = min(scripts.shard("zh:en", 1))
    for number in range(4):
        if f"n{number}" != free:
            fill(scripts, f"n{number}")
    answers = [scripts.select() for _ in range(200)]
    found = [answer for answer in answers if isinstance(answer, Chosen)]
    assert {answer.node for answer in found} == {free}
    # Three draws among two shards miss one of them with chance 1/8.
    assert len(found) > 150


def test_a_hedge_gets_a_second_slot_while_the_first_is_not_acknowledged(three: Scripts) -> None:
    first = three.place("j1")
    second = three.place("j1", 2, exclude=[first.node])
    assert (second.existing, second.attempt, second.state) == (False, 2, "reserved")
    assert second.node != first.node
    assert len(three.leases(first.node) | three.leases(second.node)) == 2


def test_there_is_no_hedge_for_what_is_acknowledged(three: Scripts) -> None:
    first = three.place("j1")
    three.commit(first.node, "j1")
    answer = three.place("j1", 2, exclude=[first.node])
    assert (answer.existing, answer.attempt, answer.state) == (True, 1, "acked")
    assert answer.node == first.node


def test_a_new_home_takes_a_job_up_where_it_is(three: Scripts) -> None:
    first = three.place("j1", home="d1")
    three.commit(first.node, "j1")
    answer = three.place("j1", home="d2")
    assert (answer.existing, answer.attempt, answer.node) == (True, 1, first.node)
    assert (answer.state, answer.ends) == ("acked", three.now + 60_000)
    assert three.job("j1")["home"] == "d2"


def test_a_new_home_gets_the_next_attempt_when_the_last_has_lapsed(three: Scripts) -> None:
    three.place("j1")
    three.advance(5_000)
    answer = three.place("j1")
    assert (answer.existing, answer.attempt) == (False, 2)


def test_a_repeat_finds_the_attempt_that_followed_one_whose_lease_ended(three: Scripts) -> None:
    first = three.place("j1")
    three.commit(first.node, "j1")
    three.advance(60_000)
    three.beat(*((node, three.known(node).epoch) for node in ("n1", "n2", "n3")))
    second = three.place("j1")
    assert (second.existing, second.attempt) == (False, 2)
    assert three.place("j1") == second._replace(existing=True)
    assert sum(len(three.leases(node)) for node in ("n1", "n2", "n3")) == 1


def test_a_new_home_finds_the_first_attempt_when_only_its_hedge_was_given_up(
    three: Scripts,
) -> None:
    first = three.place("j1")
    hedge = three.place("j1", 2, exclude=[first.node])
    three.release(hedge.node, "j1", 2)
    answer = three.place("j1", 1, home="d2")
    assert (answer.existing, answer.attempt, answer.state) == (True, 1, "reserved")


def test_a_finished_job_is_answered_with_what_finished_it(three: Scripts) -> None:
    first = three.place("j1")
    three.commit(first.node, "j1")
    three.complete(first.node, "j1")
    answer = three.place("j1", 2)
    assert (answer.existing, answer.attempt, answer.state) == (True, 1, "done")
    assert (answer.node, answer.ends) == (first.node, 0)


def test_a_gateway_that_lost_its_session_places_nothing(three: Scripts) -> None:
    three.client.hset(three.key("session", "s"), "epoch", 5)
    refused = three.allocate("j1", session="s", session_epoch=4)
    assert refused == Refused("SESSION_TAKEN_OVER", {})
    for job, epoch in (("j2", 5), ("j3", 6), ("j4", 0)):
        assert isinstance(three.allocate(job, session="s", session_epoch=epoch), Placed)
    assert isinstance(three.allocate("j5", session="unknown", session_epoch=1), Placed)
