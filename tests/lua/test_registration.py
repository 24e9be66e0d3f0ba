"""Nodes come and go: epochs, pools by difference, heartbeats, the sweep."""

from collections.abc import Iterator

import pytest
import redis

from lingua_scheduler.services.runtime.contract.capabilities import Capabilities
from lingua_scheduler.services.runtime.redis.embedded.server import EmbeddedRedis

from .scripts import (
    DRAINING,
    LEAVING,
    OFFLINE,
    OUT,
    Placed,
    Refused,
    Registered,
    Scripts,
    able,
    steps,
)

# 77 languages to 77 others: 5,929 pools for speech and 77 for text.
MANY = able(asr=[f"a{n}" for n in range(77)], tts=[f"t{n}" for n in range(77)])


@pytest.fixture
def alone(own_redis: EmbeddedRedis, prefix: str) -> Iterator[Scripts]:
    """The scripts on a server whose commands nobody else adds to."""
    with redis.Redis.from_url(own_redis.url, protocol=2) as client:
        yield Scripts(client, prefix)


def calls(scripts: Scripts, command: str) -> int:
    """How often Redis has run a command, scripts included."""
    stats = scripts.client.info("commandstats")
    return int(stats.get(f"cmdstat_{command}", {"calls": 0})["calls"])


def test_a_node_joins_every_pool_that_its_capabilities_name(scripts: Scripts) -> None:
    scripts.join("n1")
    assert set(scripts.pools_of("n1")) == able().pools()
    assert scripts.client.smembers(scripts.key("nodes", "all")) == {b"n1"}


def test_six_thousand_pools_are_joined_in_steps_that_stay_short(scripts: Scripts) -> None:
    way = steps({}, MANY, 200)
    assert len(way) == 31
    assert max(len(join) for join, _, _ in way) == 200
    epoch = scripts.join("n1", MANY)
    assert len(scripts.pools_of("n1")) == 6006
    assert scripts.register("n1", MANY, stream="s2") == Registered(epoch + 1, True)


def test_a_change_of_capabilities_moves_the_difference_only(alone: Scripts) -> None:
    alone.join("n1", MANY)
    fewer = able(asr=MANY.asr_langs[:-1], tts=MANY.tts_langs)
    more = able(asr=[*fewer.asr_langs, "new"], tts=MANY.tts_langs)
    for now, moved in ((fewer, 78), (more, 78)):
        before = calls(alone, "sadd") + calls(alone, "srem")
        alone.join("n1", now, stream=f"to {len(now.asr_langs)}")
        # One more: the node's name in the list of all nodes.
        assert calls(alone, "sadd") + calls(alone, "srem") - before == moved + 1
        assert set(alone.pools_of("n1")) == now.pools()


def test_a_heartbeat_touches_no_pool(alone: Scripts) -> None:
    epoch = alone.join("n1")
    before = calls(alone, "sadd") + calls(alone, "srem") + calls(alone, "hincrby")
    alone.beat(("n1", epoch))
    assert calls(alone, "sadd") + calls(alone, "srem") + calls(alone, "hincrby") == before


def test_a_change_that_moves_no_pool_takes_no_steps(scripts: Scripts) -> None:
    scripts.join("n1")
    again = scripts.register("n1", able(stages=0b11111), stream="s2", most=7)
    assert isinstance(again, Registered)
    assert again.in_place
    assert scripts.known("n1").max_concurrent_jobs == 7


def test_a_way_that_broke_off_is_finished_by_the_next_registration(scripts: Scripts) -> None:
    reply = scripts.register("n1")
    assert isinstance(reply, Registered)
    join, leave, _ = steps({}, able(), 2)[0]
    scripts.move("n1", reply.epoch, join=join, leave=leave)
    assert scripts.register("n1") == Registered(reply.epoch, False)
    scripts.join("n1")
    assert set(scripts.pools_of("n1")) == able().pools()


def test_a_step_can_be_repeated(scripts: Scripts) -> None:
    epoch = scripts.join("n1")
    for _ in range(2):
        assert scripts.move("n1", epoch, join=["zh:en"], leave=["en:en"]) == "ok"
    assert scripts.client.hget(scripts.key("pools"), "zh:en") == b"1"
    assert scripts.client.hget(scripts.key("pools"), "en:en") is None


def test_shards_fill_one_after_the_other_and_stay_full_when_nodes_leave(scripts: Scripts) -> None:
    scripts.with_limits(pool_size=3)
    for number in range(8):
        scripts.join(f"n{number}")
    assert [len(scripts.shard("zh:en", shard)) for shard in range(4)] == [3, 3, 2, 0]
    for node in sorted(scripts.shard("zh:en", 0))[:2]:
        scripts.remove(node)
    assert [len(scripts.shard("zh:en", shard)) for shard in range(4)] == [3, 3, 0, 0]
    for shard in range(2):
        for node in scripts.shard("zh:en", shard):
            assert scripts.pools_of(node)["zh:en"] == shard


def test_a_pool_takes_no_more_than_its_shards_can_hold(scripts: Scripts) -> None:
    scripts.with_limits(pool_size=2, max_pools=2)
    for number in range(4):
        scripts.join(f"n{number}")
    reply = scripts.register("n4")
    assert isinstance(reply, Registered)
    assert scripts.move("n4", reply.epoch, join=["zh:fr", "zh:en", "en:zh"]) == "POOL_FULL"
    assert set(scripts.pools_of("n4")) == {"zh:fr"}


def test_a_live_node_is_not_replaced_by_another_process(scripts: Scripts) -> None:
    epoch = scripts.join("n1", owner="d1")
    refused = scripts.register("n1", incarnation="i2", stream="s2", owner="d2")
    assert refused == Refused("NODE_ID_CONFLICT", {"d1": 1})
    assert scripts.known("n1").epoch == epoch


@pytest.mark.parametrize("gone", ["silent", "offline", "removed"])
def test_a_node_that_is_gone_is_replaced_by_another_process(scripts: Scripts, gone: str) -> None:
    before = scripts.join("n1")
    if gone == "silent":
        scripts.advance(15_000)
    elif gone == "offline":
        scripts.set_health("n1", OFFLINE)
    else:
        scripts.advance(1)
        scripts.remove("n1")
    assert scripts.join("n1", incarnation="i2", stream="s2") > before


def test_epochs_grow_with_each_connection_and_a_repeat_gets_the_same(scripts: Scripts) -> None:
    epochs = [scripts.join("n1", stream=f"s{number}") for number in range(3)]
    assert epochs == sorted(set(epochs))
    assert scripts.join("n1", stream="s2") == epochs[-1]
    scripts.advance(1)
    assert scripts.join("n1", stream="s3") > epochs[-1]


def test_a_node_that_was_expelled_gets_a_new_epoch_even_on_its_old_stream(
    scripts: Scripts,
) -> None:
    before = scripts.join("n1")
    scripts.remove_step("n1", forget=False, step=1)
    after = scripts.register("n1")
    assert isinstance(after, Registered)
    assert after.epoch > before
    assert not after.in_place
    assert scripts.move("n1", before, join=["zh:en"], digest=able().digest()) == "NODE_EPOCH_OLD"


def test_an_old_connection_changes_nothing(scripts: Scripts) -> None:
    old = scripts.join("n1")
    new = scripts.join("n1", stream="s2")
    assert scripts.move("n1", old, leave=["zh:en"]) == "NODE_EPOCH_OLD"
    assert scripts.set_health("n1", OFFLINE, epoch=old) == "NODE_EPOCH_OLD"
    assert scripts.remove_step("n1", epoch=old)[0] == "NODE_EPOCH_OLD"
    assert scripts.beat(("n1", old)) == [("n1", "epoch_old")]
    assert (scripts.known("n1").epoch, scripts.known("n1").health) == (new, 1)


def test_an_unknown_node_must_register(scripts: Scripts) -> None:
    assert scripts.beat(("n1", 1)) == [("n1", "register_again")]
    assert scripts.move("n1", 1) == "NODE_NOT_FOUND"
    assert scripts.set_health("n1", DRAINING) == "NODE_NOT_FOUND"
    assert scripts.remove_step("n1") == ("ok", 0, 0, 0)


def test_a_node_that_comes_back_keeps_what_it_still_runs(scripts: Scripts) -> None:
    scripts.join("n1", most=3)
    for job in ("kept", "lost"):
        scripts.reserve("n1", job)
        scripts.commit("n1", job)
    scripts.reserve("n1", "unsent")
    scripts.join("n1", stream="s2", most=3, running=["kept:1"])
    assert set(scripts.running("n1")) == {"kept:1"}
    assert set(scripts.reserved("n1")) == {"unsent:1"}
    assert scripts.known("n1").used == 2


def test_a_node_that_comes_back_smaller_gets_nothing_until_it_has_room(scripts: Scripts) -> None:
    scripts.join("n1", most=3)
    jobs = ["a", "b", "c"]
    for job in jobs:
        scripts.reserve("n1", job)
        scripts.commit("n1", job)
    scripts.join("n1", stream="s2", most=2, running=[f"{job}:1" for job in jobs])
    assert len(scripts.running("n1")) == 3
    for job in jobs[:2]:
        assert isinstance(scripts.allocate("d"), Refused)
        scripts.complete("n1", job)
    assert isinstance(scripts.allocate("d"), Placed)


def test_a_beat_renews_a_lease_in_its_second_half(scripts: Scripts) -> None:
    epoch = scripts.join("n1")
    scripts.reserve("n1", "j1")
    ends = scripts.commit("n1", "j1")[1]
    scripts.advance(30_000)
    assert scripts.beat(("n1", epoch, ["j1:1"])) == []
    assert scripts.running("n1") == {"j1:1": ends}
    scripts.advance(1)
    scripts.beat(("n1", epoch, ["j1:1"]))
    assert scripts.running("n1") == {"j1:1": scripts.now + 60_000}


def test_a_beat_puts_a_lost_lease_back_where_there_is_room(scripts: Scripts) -> None:
    epoch = scripts.join("n1", most=1)
    assert scripts.beat(("n1", epoch, ["lost:1"])) == []
    assert set(scripts.running("n1")) == {"lost:1"}
    assert scripts.beat(("n1", epoch, ["lost:1", "more:1"])) == [
        ("n1", "not_renewed", "more:1"),
    ]
    assert set(scripts.running("n1")) == {"lost:1"}


def test_a_beat_does_not_revive_an_attempt_that_has_ended(scripts: Scripts) -> None:
    epoch = scripts.join("n1")
    for job, outcome in (("a", "done"), ("b", "failed"), ("c", "cancelled")):
        scripts.reserve("n1", job)
        scripts.commit("n1", job)
        scripts.complete("n1", job, outcome=outcome)
    problems = scripts.beat(("n1", epoch, ["a:1", "b:1", "c:1"]))
    assert problems == [("n1", "not_renewed", "a:1", "b:1", "c:1")]
    assert scripts.leases("n1") == {}


def test_a_beat_does_not_revive_an_attempt_whose_job_is_done_elsewhere(scripts: Scripts) -> None:
    epoch = scripts.join("n1")
    scripts.join("n2")
    scripts.reserve("n1", "j1")
    scripts.commit("n1", "j1")
    scripts.advance(60_000)
    scripts.beat(("n1", epoch), ("n2", scripts.known("n2").epoch))
    second = scripts.place("j1", exclude=["n1"])
    assert (second.node, second.attempt) == ("n2", 2)
    scripts.commit("n2", "j1", 2)
    assert scripts.beat(("n1", epoch, ["j1:1"])) == [("n1", "not_renewed", "j1:1")]
    scripts.complete("n2", "j1", 2)
    assert scripts.beat(("n1", epoch, ["j1:1"])) == [("n1", "not_renewed", "j1:1")]
    assert scripts.leases("n1") == {}


def test_a_beat_does_not_take_over_an_attempt_of_another_node(scripts: Scripts) -> None:
    scripts.join("n1")
    epoch = scripts.join("n2")
    scripts.reserve("n1", "j1")
    scripts.commit("n1", "j1")
    assert scripts.beat(("n2", epoch, ["j1:1"])) == [("n2", "not_renewed", "j1:1")]


def test_a_beat_leaves_a_reservation_that_ended_to_the_acknowledgement(scripts: Scripts) -> None:
    epoch = scripts.join("n1")
    scripts.reserve("n1", "j1")
    scripts.advance(5_000)
    assert scripts.beat(("n1", epoch, ["j1:1"])) == []
    assert scripts.leases("n1") == {}
    assert scripts.commit("n1", "j1")[0] == "committed_late"


def test_a_node_that_is_named_twice_in_a_batch_counts_both_beats(scripts: Scripts) -> None:
    epoch = scripts.join("n1")
    scripts.beat(("n1", epoch, ["lost:1"]), ("n1", epoch))
    live = scripts.known("n1")
    assert (live.used, live.next_end_ms) == (1, scripts.now + 60_000)


def test_a_batch_of_more_than_a_thousand_is_taken_whole(scripts: Scripts) -> None:
    epochs = []
    for number in range(1_200):
        reply = scripts.register(f"n{number}")
        assert isinstance(reply, Registered)
        epochs.append((f"n{number}", reply.epoch))
    scripts.advance(1_000)
    assert scripts.beat(*epochs, ("stranger", 1)) == [("stranger", "register_again")]
    assert {scripts.known(f"n{number}").beat_ms for number in (0, 1_000, 1_199)} == {scripts.now}


def hear(scripts: Scripts, node: str, ms: int) -> None:
    """So much time passes, in which only this node is heard."""
    epoch = scripts.known(node).epoch
    while ms > 0:
        assert scripts.beat((node, epoch)) == []
        scripts.advance(min(ms, 5_000))
        ms -= 5_000
    assert scripts.beat((node, epoch)) == []


def test_the_sweep_names_the_silent_and_then_the_forgotten(scripts: Scripts) -> None:
    scripts.join("n1")
    scripts.join("n2")
    hear(scripts, "n2", 15_000)
    assert scripts.sweep() == ("0", set(), set())
    hear(scripts, "n2", 1)
    assert scripts.sweep() == ("0", {"n1"}, set())
    assert scripts.remove("n2") == "ok"
    assert scripts.remove("n1", forget=False, silent_ms=15_000) == "ok"
    assert (scripts.known("n1").health, scripts.pools_of("n1")) == (OUT, {})
    assert scripts.sweep() == ("0", set(), set())
    scripts.advance(3_600_000)
    assert scripts.sweep() == ("0", set(), {"n1"})
    assert scripts.remove("n1", forget=True, silent_ms=3_600_000) == "ok"
    assert scripts.live("n1") is None
    left = {
        key.decode().removeprefix(scripts.prefix)
        for key in scripts.client.keys(f"{scripts.prefix}:*")
    }
    assert left <= {":test:now_ms", ":test:expires", ":hearing:since", ":hearing:last"}


def test_a_node_whose_stream_ended_has_only_the_grace_to_come_back(scripts: Scripts) -> None:
    scripts.join("n1")
    scripts.join("n2")
    scripts.set_health("n1", OFFLINE)
    hear(scripts, "n2", 5_000)
    assert scripts.sweep().expel == set()
    hear(scripts, "n2", 1)
    assert scripts.sweep().expel == {"n1"}


@pytest.mark.parametrize(("offline", "has_ms"), [(False, 15_000), (True, 5_000)])
@pytest.mark.parametrize("away_ms", [15_001, 60_000, 3_000_000])
def test_silence_counts_only_from_when_heartbeats_arrive_again(
    scripts: Scripts, offline: bool, has_ms: int, away_ms: int
) -> None:
    """Nothing could be stored for a while: Redis was away, or no pool service ran."""
    scripts.join("n1")
    scripts.join("n2")
    hear(scripts, "n2", 10_000)
    if offline:
        scripts.set_health("n1", OFFLINE)
    scripts.advance(away_ms)
    assert scripts.sweep().expel == set()
    hear(scripts, "n2", has_ms)
    assert scripts.sweep().expel == set()
    hear(scripts, "n2", 1)
    assert scripts.sweep().expel == {"n1"}


def test_a_clock_that_jumps_takes_no_node_out(scripts: Scripts) -> None:
    scripts.join("n1")
    scripts.join("n2")
    hear(scripts, "n2", 10_000)
    scripts.advance(600_000)
    hear(scripts, "n2", 10_000)
    assert scripts.sweep().expel == set()
    scripts.advance(-600_000)
    assert scripts.sweep().expel == set()
    hear(scripts, "n2", 10_000)
    assert scripts.sweep().expel == set()


def test_a_fleet_of_which_nobody_is_heard_is_taken_out_when_it_would_be_forgotten(
    scripts: Scripts,
) -> None:
    scripts.join("n1")
    scripts.advance(3_600_000)
    assert scripts.sweep() == ("0", set(), set())
    scripts.advance(1)
    assert scripts.sweep() == ("0", {"n1"}, set())
    assert scripts.remove("n1", forget=False, silent_ms=15_000) == "ok"
    assert scripts.sweep() == ("0", set(), {"n1"})


def test_a_node_that_came_back_meanwhile_is_spared_by_the_sweep(scripts: Scripts) -> None:
    scripts.join("n1")
    scripts.advance(20_000)
    assert scripts.remove_step("n1", forget=False, step=1, silent_ms=15_000)[0] == "ok"
    scripts.join("n1", stream="s2")
    assert scripts.remove_step("n1", forget=False, step=1, silent_ms=15_000)[0] == "alive"
    assert set(scripts.pools_of("n1")) == able().pools()


def test_a_node_on_its_way_out_must_register_again(scripts: Scripts) -> None:
    epoch = scripts.join("n1")
    scripts.remove_step("n1", step=1)
    assert scripts.known("n1").health == LEAVING
    assert scripts.beat(("n1", epoch)) == [("n1", "register_again")]
    assert scripts.set_health("n1", 1) == "ok"
    assert scripts.known("n1").health == LEAVING
    assert isinstance(scripts.select(), Refused)
    assert scripts.move("n1", epoch, join=["zh:fr"]) == "NODE_NOT_FOUND"


def test_a_removal_that_broke_off_is_taken_up_by_the_sweep(scripts: Scripts) -> None:
    scripts.join("n1")
    assert scripts.remove_step("n1", step=2) == ("ok", 1, 2, len(able().pools()) - 2)
    assert scripts.sweep().expel == {"n1"}
    scripts.advance(5_000)
    assert scripts.remove("n1", forget=False, step=2, silent_ms=5_000) == "ok"
    assert (scripts.known("n1").health, scripts.pools_of("n1")) == (OUT, {})


def test_a_removal_can_be_repeated(scripts: Scripts) -> None:
    scripts.join("n1")
    assert scripts.remove("n1", step=1) == "ok"
    assert scripts.remove_step("n1") == ("ok", 0, 0, 0)
    assert scripts.client.hgetall(scripts.key("pools")) == {}


def test_equal_abilities_have_equal_digests_whatever_the_stages() -> None:
    digests = {able().digest(), able(stages=0).digest()}
    assert len(digests) == 1
    assert Capabilities(("zh",), ("zh",), (), (), 0).digest() not in digests


def test_a_job_whose_result_waits_at_its_node_is_found_there(scripts: Scripts) -> None:
    """Its home died, and the node finished it before it was connected again."""
    scripts.join("n1", most=1)
    scripts.join("n2", most=1)
    first = scripts.place("j1")
    scripts.commit(first.node, "j1")
    scripts.register(first.node, stream="s2", most=1, finished=["j1:1"])
    again = scripts.place("j1", 2)
    assert (again.existing, again.attempt, again.node) == (True, 1, first.node)
    assert scripts.complete(first.node, "j1") == ("completed", "done")
    assert scripts.known(first.node).used == 0
