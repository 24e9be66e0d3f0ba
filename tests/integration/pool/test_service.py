"""Every call of the pool service over a real channel, on a real Redis."""

import asyncio
import re
import time
import urllib.request
from collections.abc import AsyncIterator, Iterable
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

from lingua_scheduler.v1 import common_pb2, pool_pb2
from tests.support.fleet_watcher import watching
from tests.support.pool_client import (
    Pool,
    allocation,
    connected,
    criteria,
    pair,
    ref,
    registration,
    running_pool,
)
from tests.support.rpc_errors import failure, reason
from tests.support.services import PoolProcess

READY, DRAINING = common_pb2.NODE_HEALTH_READY, common_pb2.NODE_HEALTH_DRAINING
Commit, Release, Complete = (
    pool_pb2.CommitResponse,
    pool_pb2.ReleaseResponse,
    pool_pb2.CompleteResponse,
)
FULL = (grpc.StatusCode.RESOURCE_EXHAUSTED, "ALL_CANDIDATES_FULL_OR_FAILED")


def commit(job_id: str, node_id: str = "n1") -> pool_pb2.CommitRequest:
    return pool_pb2.CommitRequest(attempt=ref(job_id), node_id=node_id)


def release(job_id: str, node_id: str = "n1", **fields: Any) -> pool_pb2.ReleaseRequest:
    values = {"cause": pool_pb2.RELEASE_CAUSE_CANCELLED, **fields}
    return pool_pb2.ReleaseRequest(attempt=ref(job_id), node_id=node_id, **values)


def complete(job_id: str, node_id: str = "n1", **fields: Any) -> pool_pb2.CompleteRequest:
    values = {"outcome": pool_pb2.ATTEMPT_OUTCOME_SUCCEEDED, **fields}
    return pool_pb2.CompleteRequest(attempt=ref(job_id), node_id=node_id, **values)


def beat(node_id: str, epoch: int, *jobs: str, **fields: Any) -> pool_pb2.NodeBeat:
    return pool_pb2.NodeBeat(node_id=node_id, epoch=epoch, running=map(ref, jobs), **fields)


async def problems(pool: Pool, *beats: pool_pb2.NodeBeat) -> list[tuple[str, str, list[str]]]:
    answer = await pool.stub.Heartbeat(pool_pb2.HeartbeatRequest(beats=beats))
    return [
        (
            problem.node_id,
            pool_pb2.BeatProblem.Kind.Name(problem.kind).removeprefix("KIND_"),
            [attempt.job_id for attempt in problem.attempts],
        )
        for problem in answer.problems
    ]


async def test_a_registered_node_is_shown_with_all_that_was_said_of_it(pool: Pool) -> None:
    answer = await pool.register(
        "n1", asr=("ZH", "en"), tts=("en",), slots=3, stages=[common_pb2.STAGE_KIND_TONE]
    )
    # zh->en and en->en with speech, zh and en into any language as text.
    assert (answer.pools, answer.pools_joined, answer.pools_left) == (4, 4, 0)
    node = (await pool.node("n1")).node
    assert node.epoch == answer.epoch > 0
    assert (node.health, node.max_concurrent_jobs, node.pools) == (READY, 3, 4)
    assert (node.owner_instance, node.owner_address) == ("dispatcher-0", "127.0.0.1:7720")
    assert list(node.capabilities.asr_langs) == ["en", "zh"]
    assert list(node.capabilities.semantic_langs) == ["en", "zh"]
    assert list(node.capabilities.tts_langs) == ["en"]
    assert common_pb2.STAGE_KIND_TONE in node.capabilities.stages
    assert not node.drained_by_operator


async def test_a_repeated_registration_keeps_its_epoch_and_a_reconnect_gets_a_larger_one(
    pool: Pool,
) -> None:
    first = await pool.register("n1")
    assert (await pool.register("n1")).epoch == first.epoch
    assert (await pool.register("n1", stream_id="s2")).epoch > first.epoch


async def test_the_id_of_a_live_node_is_not_given_to_another_process(pool: Pool) -> None:
    await pool.register("n1")
    code, why, said = await failure(pool.register("n1", incarnation="another"))
    assert (code, why) == (grpc.StatusCode.ALREADY_EXISTS, "NODE_ID_CONFLICT")
    assert said.metadata["owner_instance"] == "dispatcher-0"


async def test_a_change_of_languages_moves_a_node_by_the_difference(pool: Pool) -> None:
    await pool.register("n1", asr=("zh",), tts=("en", "de"))
    moved = await pool.register("n1", stream_id="s2", asr=("zh",), tts=("en", "fr"))
    assert (moved.pools, moved.pools_joined, moved.pools_left) == (3, 1, 1)
    assert (await failure(pool.stub.Allocate(allocation("j1", wants=criteria("zh>de")))))[1] == (
        "NO_CAPABLE_NODE"
    )
    await pool.stub.Allocate(allocation("j1", wants=criteria("zh>fr")))


async def test_a_pair_with_no_shard_left_refuses_a_node_and_keeps_it_out_of_all_pools(
    redis_url: str, prefix: str
) -> None:
    async with running_pool(redis_url, prefix, pool_size=1, max_pools=2) as pool:
        await pool.register("n1")
        await pool.register("n2")
        code, why, said = await failure(pool.register("n3", asr=("zh", "de")))
        assert (code, why) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "POOL_FULL")
        assert "LINGUA_POOL_SIZE" in said.message
        assert (await pool.node("n3")).node.pools == 0
        assert (await failure(pool.stub.Allocate(allocation("j1", wants=criteria("de>en")))))[
            1
        ] in (
            "NO_CAPABLE_NODE",
            "ALL_CANDIDATES_FULL_OR_FAILED",
        )


async def test_heartbeats_answer_only_what_needs_an_answer(pool: Pool) -> None:
    one, two = await pool.register("n1"), await pool.register("n2")
    await pool.stub.Allocate(allocation("over", wants=criteria(preferred_node_id="n1")))
    await pool.stub.Commit(commit("over"))
    await pool.stub.Complete(complete("over"))
    assert await problems(pool) == []
    assert await problems(
        pool,
        beat("n1", one.epoch, "over"),
        beat("n2", two.epoch - 1),
        beat("n3", 1),
        beat("n2", two.epoch, load=common_pb2.NodeLoad(cpu=0.25, gpu=0.5)),
    ) == [("n1", "NOT_RENEWED", ["over"]), ("n2", "EPOCH_OLD", []), ("n3", "REGISTER_AGAIN", [])]
    assert (await pool.node("n2")).node.load == 0.5


async def test_a_heartbeat_puts_back_what_the_store_has_lost_while_there_is_room(
    pool: Pool,
) -> None:
    epoch = (await pool.register("n1", slots=2)).epoch
    assert await problems(pool, beat("n1", epoch, "a", "b", "c")) == [("n1", "NOT_RENEWED", ["c"])]
    leases = (await pool.node("n1")).leases
    assert {lease.attempt.job_id for lease in leases} == {"a", "b"}
    assert all(lease.running for lease in leases)


async def test_a_node_that_is_not_ready_gets_nothing_until_it_is(pool: Pool) -> None:
    epoch = (await pool.register("n1")).epoch
    for health in (DRAINING, common_pb2.NODE_HEALTH_DEGRADED, common_pb2.NODE_HEALTH_OFFLINE):
        set_health = pool_pb2.SetNodeHealthRequest(node_id="n1", epoch=epoch, health=health)
        assert (await pool.stub.SetNodeHealth(set_health)).node.health == health
        assert (await failure(pool.stub.Allocate(allocation("j1"))))[:2] == FULL
    await problems(pool, beat("n1", epoch, health=READY))
    assert (await pool.stub.Allocate(allocation("j1"))).placement.node_id == "n1"


async def test_an_operators_drain_holds_whatever_the_node_reports(pool: Pool) -> None:
    epoch = (await pool.register("n1")).epoch
    wish = pool_pb2.SetNodeHealthRequest(node_id="n1", health=DRAINING, by_operator=True)
    node = (await pool.stub.SetNodeHealth(wish)).node
    assert (node.health, node.drained_by_operator) == (DRAINING, True)
    await problems(pool, beat("n1", epoch, health=READY))
    await pool.register("n1", stream_id="s2")
    assert (await pool.node("n1")).node.health == DRAINING
    assert (await failure(pool.stub.Allocate(allocation("j1"))))[:2] == FULL
    wish.health = READY
    assert (await pool.stub.SetNodeHealth(wish)).node.health == READY
    await pool.stub.Allocate(allocation("j1"))


async def test_a_drain_shows_when_it_began_and_how_far_it_is(pool: Pool) -> None:
    await pool.register("n1", slots=3)
    for job_id in ("j1", "j2"):
        await pool.stub.Allocate(allocation(job_id))
    node = (await pool.node("n1")).node
    assert (node.used_slots, node.drained_ms, node.slots_used_at_drain) == (2, 0, 0)
    wish = pool_pb2.SetNodeHealthRequest(node_id="n1", health=DRAINING, by_operator=True)
    drained = (await pool.stub.SetNodeHealth(wish)).node
    assert (drained.used_slots, drained.slots_used_at_drain) == (2, 2)
    assert abs(drained.drained_ms - time.time() * 1000) < 10_000
    done = pool_pb2.CompleteRequest(
        attempt=ref("j1"), node_id="n1", outcome=pool_pb2.ATTEMPT_OUTCOME_SUCCEEDED
    )
    await pool.stub.Complete(done)
    # Neither a second wish nor another connection begins the drain anew.
    await pool.stub.SetNodeHealth(wish)
    await pool.register("n1", slots=3, stream_id="s2")
    node = (await pool.node("n1")).node
    assert (node.used_slots, node.slots_used_at_drain) == (1, 2)
    assert node.drained_ms == drained.drained_ms
    wish.health = READY
    node = (await pool.stub.SetNodeHealth(wish)).node
    assert (node.used_slots, node.drained_ms, node.slots_used_at_drain) == (1, 0, 0)


async def test_a_drain_that_an_older_service_ended_is_not_shown(pool: Pool) -> None:
    await pool.register("n1")
    # It does not know these fields, so it does not delete them.
    key = f"{pool.prefix}:node:n1"
    pool.store.hset(key, mapping={"drained_ms": 5, "drained_used": 2})
    node = (await pool.node("n1")).node
    assert (node.drained_by_operator, node.drained_ms, node.slots_used_at_drain) == (False, 0, 0)
    async with watching(pool.stub) as fleet:
        node = fleet.nodes["n1"]
    assert (node.drained_by_operator, node.drained_ms, node.slots_used_at_drain) == (False, 0, 0)


async def test_an_old_connection_of_a_node_changes_nothing(pool: Pool) -> None:
    old = (await pool.register("n1")).epoch
    await pool.register("n1", stream_id="s2")
    for call in (
        pool.stub.SetNodeHealth(
            pool_pb2.SetNodeHealthRequest(node_id="n1", epoch=old, health=DRAINING)
        ),
        pool.stub.RemoveNode(pool_pb2.RemoveNodeRequest(node_id="n1", epoch=old)),
    ):
        assert (await failure(call))[:2] == (grpc.StatusCode.ABORTED, "NODE_EPOCH_OLD")
    assert (await pool.node("n1")).node.health == READY


async def test_calls_about_a_node_that_nobody_knows_say_so(pool: Pool) -> None:
    for call in (
        pool.stub.GetNode(pool_pb2.GetNodeRequest(node_id="n9")),
        pool.stub.SetNodeHealth(pool_pb2.SetNodeHealthRequest(node_id="n9", health=READY)),
        pool.stub.Reserve(pool_pb2.ReserveRequest(node_id="n9", attempt=ref("j1"))),
    ):
        assert (await failure(call))[:2] == (grpc.StatusCode.NOT_FOUND, "NODE_NOT_FOUND")


async def test_a_removed_node_leaves_nothing_behind_and_can_be_removed_again(pool: Pool) -> None:
    await pool.register("n1", asr=("zh", "en", "de"), tts=("fr", "it"))
    gone = await pool.stub.RemoveNode(pool_pb2.RemoveNodeRequest(node_id="n1"))
    assert (gone.removed, gone.pools_left) == (True, 9)
    assert pool.keys() == set()
    again = await pool.stub.RemoveNode(pool_pb2.RemoveNodeRequest(node_id="n1"))
    assert (again.removed, again.pools_left) == (False, 0)


async def test_select_answers_a_node_and_reserves_nothing(pool: Pool) -> None:
    epoch = (await pool.register("n1", slots=1)).epoch
    before = pool.keys()
    for _ in range(3):
        placement = (
            await pool.stub.SelectNode(pool_pb2.SelectNodeRequest(criteria=criteria()))
        ).placement
        assert (placement.node_id, placement.node_epoch) == ("n1", epoch)
        assert placement.path == pool_pb2.PLACEMENT_PATH_POOL
    assert pool.keys() == before
    assert (await pool.node("n1")).node.reserved == 0


async def test_a_job_goes_from_reserved_to_running_to_done(pool: Pool) -> None:
    await pool.register("n1")
    answer = await pool.stub.Allocate(allocation("j1", home_instance="dispatcher-0"))
    assert answer.attempt == ref("j1")
    assert (answer.state, answer.existing) == (common_pb2.JOB_STATE_RESERVED, False)
    assert (answer.placement.owner_instance, answer.placement.owner_address) == (
        "dispatcher-0",
        "127.0.0.1:7720",
    )
    (lease,) = (await pool.node("n1")).leases
    assert (lease.attempt, lease.running, lease.ends_ms) == (
        ref("j1"),
        False,
        answer.lease_ends_ms,
    )

    committed = await pool.stub.Commit(commit("j1"))
    assert committed.outcome == Commit.OUTCOME_COMMITTED
    (lease,) = (await pool.node("n1")).leases
    assert (lease.running, lease.ends_ms) == (True, committed.lease_ends_ms)
    assert (await pool.stub.Commit(commit("j1"))).outcome == Commit.OUTCOME_ALREADY

    done = await pool.stub.Complete(complete("j1"))
    assert (done.outcome, done.state) == (Complete.OUTCOME_COMPLETED, common_pb2.JOB_STATE_DONE)
    assert (await pool.stub.Complete(complete("j1"))).outcome == Complete.OUTCOME_ALREADY
    assert not (await pool.node("n1")).leases
    over = await pool.stub.Allocate(allocation("j1", 2))
    assert (over.existing, over.state) == (True, common_pb2.JOB_STATE_DONE)


async def test_a_repeated_allocation_is_answered_with_the_first(pool: Pool) -> None:
    for node_id in ("n1", "n2", "n3"):
        await pool.register(node_id)
    first = await pool.stub.Allocate(allocation("j1"))
    for _ in range(5):
        again = await pool.stub.Allocate(allocation("j1"))
        assert again.existing
        assert (again.attempt, again.lease_ends_ms) == (first.attempt, first.lease_ends_ms)
        assert again.placement.node_id == first.placement.node_id
    assert sum(map(len, pool.leases().values())) == 1


async def test_refusals_name_their_reason_and_count_what_was_seen(pool: Pool) -> None:
    await pool.register("n1", slots=1)
    await pool.register("n2", slots=1, asr=("de",))
    await pool.stub.Allocate(allocation("j1"))
    code, why, said = await failure(pool.stub.Allocate(allocation("j2")))
    assert (code, why) == FULL
    assert said.retry_after_ms > 0
    assert dict(said.metadata) == {"drawn": "1", "full": "1"}
    for wants, expected in (
        (criteria("fr>en"), "NO_CAPABLE_NODE"),
        (criteria("zh>fr"), "NO_CAPABLE_NODE"),
        (criteria(required_stages=[common_pb2.STAGE_KIND_TONE]), "NO_CAPABLE_NODE"),
        (criteria(exclude_node_ids=["n1"]), "ALL_CANDIDATES_FULL_OR_FAILED"),
        (criteria(preferred_node_id="n2"), "PREFERRED_NODE_NOT_CAPABLE"),
        (criteria(preferred_node_id="n9"), "PREFERRED_NODE_NOT_CAPABLE"),
        (criteria(preferred_node_id="n1", strict=True), "ALL_CANDIDATES_FULL_OR_FAILED"),
    ):
        assert (await failure(pool.stub.Allocate(allocation("j2", wants=wants))))[1] == expected
        select = pool_pb2.SelectNodeRequest(criteria=wants)
        assert (await failure(pool.stub.SelectNode(select)))[1] == expected


async def test_text_jobs_need_no_node_that_speaks(pool: Pool) -> None:
    await pool.register("n1", tts=(), nmt=("zh>en",))
    assert (await failure(pool.stub.Allocate(allocation("j1"))))[1] == "NO_CAPABLE_NODE"
    text = await pool.stub.Allocate(allocation("j1", wants=criteria(require_tts=False)))
    assert text.placement.node_id == "n1"


async def test_reserve_takes_the_named_node_or_says_that_it_is_full(pool: Pool) -> None:
    await pool.register("n1", slots=1)
    request = pool_pb2.ReserveRequest(node_id="n1", attempt=ref("j1"))
    first, again = await pool.stub.Reserve(request), await pool.stub.Reserve(request)
    assert (first.existing, again.existing) == (False, True)
    assert first.placement.path == pool_pb2.PLACEMENT_PATH_NAMED
    assert first.placement.node_id == again.placement.node_id == "n1"
    assert first.lease_ends_ms == again.lease_ends_ms
    other = pool_pb2.ReserveRequest(node_id="n1", attempt=ref("j2"))
    assert (await failure(pool.stub.Reserve(other)))[:2] == FULL


async def test_release_gives_back_what_is_reserved_and_nothing_else(pool: Pool) -> None:
    await pool.register("n1", slots=1)
    await pool.stub.Allocate(allocation("j1"))
    assert (await pool.stub.Release(release("j1"))).outcome == Release.OUTCOME_RELEASED
    again = await pool.stub.Release(release("j1"))
    assert again.outcome == Release.OUTCOME_NOTHING_TO_RELEASE
    await pool.stub.Allocate(allocation("j2"))
    await pool.stub.Commit(commit("j2"))
    assert (await pool.stub.Release(release("j2"))).outcome == Release.OUTCOME_RUNNING
    assert (await failure(pool.stub.Allocate(allocation("j3"))))[:2] == FULL


async def test_a_released_job_that_has_ended_is_not_tried_again(pool: Pool) -> None:
    await pool.register("n1")
    await pool.stub.Allocate(allocation("j1"))
    await pool.stub.Release(release("j1", final_state=common_pb2.JOB_STATE_CANCELLED))
    answer = await pool.stub.Allocate(allocation("j1", 2))
    assert (answer.existing, answer.state) == (True, common_pb2.JOB_STATE_CANCELLED)
    assert pool.leases() == {}


async def test_three_failures_in_a_row_set_a_node_aside_and_a_success_clears_it(
    pool: Pool,
) -> None:
    await pool.register("n1", slots=5)
    # A node that is alone would be chosen all the same.
    await pool.register("n2", health=common_pb2.NODE_HEALTH_DRAINING)
    await pool.stub.Allocate(allocation("good"))
    await pool.stub.Commit(commit("good"))
    for job_id in ("a", "b", "c"):
        await pool.stub.Allocate(allocation(job_id))
        await pool.stub.Commit(commit(job_id))
        failed = await pool.stub.Complete(
            complete(job_id, outcome=pool_pb2.ATTEMPT_OUTCOME_FAILED, detail="out of memory" * 50)
        )
        assert failed.state == common_pb2.JOB_STATE_RETRYING
    node = (await pool.node("n1")).node
    assert node.failures_in_row == 3
    assert node.ejected_until_ms > node.last_heartbeat_ms
    assert (await failure(pool.stub.Allocate(allocation("d"))))[2].metadata["ejected"] == "1"
    await pool.stub.Complete(complete("good"))
    node = (await pool.node("n1")).node
    assert (node.failures_in_row, node.ejected_until_ms) == (0, 0)
    assert (await pool.stub.Allocate(allocation("d"))).placement.node_id == "n1"


async def test_a_bound_session_goes_to_its_node_until_the_turn_ends(pool: Pool) -> None:
    for node_id in ("n1", "n2", "n3", "n4"):
        await pool.register(node_id, slots=9)
    bind = pool_pb2.BindSessionRequest(
        session_id="s1",
        pair=pair("zh>en"),
        kind=pool_pb2.BINDING_KIND_TIMEOUT,
        node_id="n3",
        utterance_index=0,
    )
    assert (await pool.stub.BindSession(bind)).bound
    select = pool_pb2.SelectNodeRequest(criteria=criteria("ZH>EN"), session_id="s1")
    assert (await pool.stub.SelectNode(select)).placement.node_id == "n3"
    placed = (
        await pool.stub.Allocate(
            allocation(
                "j1",
                session_id="s1",
                utterance_index=1,
                reason=common_pb2.FINALIZE_REASON_MAX_DURATION,
            )
        )
    ).placement
    assert (placed.node_id, placed.path) == ("n3", pool_pb2.PLACEMENT_PATH_TIMEOUT_BINDING)
    assert (placed.binding, placed.binding_kind) == (
        pool_pb2.BINDING_OUTCOME_HIT,
        pool_pb2.BINDING_KIND_TIMEOUT,
    )
    last = allocation(
        "j2", session_id="s1", utterance_index=2, reason=common_pb2.FINALIZE_REASON_IS_FINAL
    )
    placed = (await pool.stub.Allocate(last)).placement
    assert (placed.node_id, placed.path) == ("n3", pool_pb2.PLACEMENT_PATH_MAX_DURATION_BINDING)
    free = allocation("j3", session_id="s1", utterance_index=3)
    assert (await pool.stub.Allocate(free)).placement.binding == pool_pb2.BINDING_OUTCOME_NONE
    # Its utterance has been overtaken.
    assert not (await pool.stub.BindSession(bind)).bound


async def test_a_session_is_not_bound_to_an_unknown_node_and_bindings_can_be_cleared(
    pool: Pool,
) -> None:
    await pool.register("n1")
    bind = pool_pb2.BindSessionRequest(
        session_id="s1", pair=pair("zh>en"), kind=pool_pb2.BINDING_KIND_MAX_DURATION, node_id="n9"
    )
    assert not (await pool.stub.BindSession(bind)).bound
    bind.node_id = "n1"
    assert (await pool.stub.BindSession(bind)).bound
    clear = pool_pb2.ClearSessionRequest(session_id="s1", pairs=[pair("zh>en"), pair("en>zh")])
    assert (await pool.stub.ClearSession(clear)).cleared == 1
    assert (await pool.stub.ClearSession(clear)).cleared == 0


async def test_a_full_bound_node_is_an_answer_of_its_own_to_those_who_wait(pool: Pool) -> None:
    await pool.register("n1", slots=1)
    await pool.register("n2", slots=1)
    first = allocation("j1", session_id="s1", reason=common_pb2.FINALIZE_REASON_MAX_LENGTH)
    bound_to = (await pool.stub.Allocate(first)).placement.node_id
    following = allocation("j2", session_id="s1", utterance_index=1, wait_for_bound_node=True)
    code, why, said = await failure(pool.stub.Allocate(following))
    assert (code, why) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "BOUND_NODE_FULL")
    assert said.retry_after_ms > 0
    following.wait_for_bound_node = False
    placed = (await pool.stub.Allocate(following)).placement
    assert placed.node_id != bound_to
    assert placed.binding == pool_pb2.BINDING_OUTCOME_FULL


async def test_a_gateway_that_lost_its_session_gets_no_slot(pool: Pool) -> None:
    await pool.register("n1")
    pool.store.hset(f"{pool.prefix}:session:s1", "epoch", 7)
    old = allocation("j1", session_id="s1", session_epoch=6)
    assert (await failure(pool.stub.Allocate(old)))[:2] == (
        grpc.StatusCode.ABORTED,
        "SESSION_TAKEN_OVER",
    )
    assert pool.leases() == {}
    await pool.stub.Allocate(allocation("j1", session_id="s1", session_epoch=7))


async def every_node(pool: Pool, **query: Any) -> tuple[list[pool_pb2.Node], int]:
    """What the pages of a listing hold together, and how many pages there were."""
    nodes: list[pool_pb2.Node] = []
    token, pages = "", 0
    while token or not pages:
        answer = await pool.stub.ListNodes(pool_pb2.ListNodesRequest(page_token=token, **query))
        nodes.extend(answer.nodes)
        token, pages = answer.next_page_token, pages + 1
    return nodes, pages


async def test_the_pages_of_all_nodes_hold_every_node(pool: Pool) -> None:
    # A connection carries 256 calls at a time.
    for first in range(0, 700, 100):
        await asyncio.gather(*(pool.register(f"n{i}") for i in range(first, first + 100)))
    nodes, pages = await every_node(pool, page_size=50)
    assert {node.node_id for node in nodes} == {f"n{i}" for i in range(700)}
    assert 7 <= pages <= 28


async def test_nodes_are_listed_by_health_and_by_direction(pool: Pool) -> None:
    await pool.register("n1")
    await pool.register("n2", health=DRAINING)
    await pool.register("n3", asr=("de",))

    async def ids(**query: Any) -> set[str]:
        return {node.node_id for node in (await every_node(pool, **query))[0]}

    assert await ids() == {"n1", "n2", "n3"}
    assert await ids(health=READY) == {"n1", "n3"}
    assert await ids(health=DRAINING) == {"n2"}
    assert await ids(pair=pair("ZH>en")) == {"n1", "n2"}
    assert await ids(pair=pair("de>en"), health=READY) == {"n3"}
    assert await ids(pair=pair("en>de")) == set()


async def test_pools_are_listed_with_their_slots(pool: Pool) -> None:
    await pool.register("n1", asr=("zh", "de"), tts=("en",), slots=3)
    await pool.register("n2", slots=2)
    await pool.register("n3", slots=7, health=DRAINING)
    await pool.stub.Allocate(allocation("j1", wants=criteria("de>en")))

    async def listed(**query: Any) -> list[tuple[str, str, int, int, int, int]]:
        answer = await pool.stub.ListPools(pool_pb2.ListPoolsRequest(**query))
        return [
            (it.pair.src, it.pair.tgt, it.nodes, it.ready_nodes, it.slots, it.free_slots)
            for it in answer.pools
        ]

    assert await listed() == [("de", "en", 1, 1, 3, 2), ("zh", "en", 3, 2, 5, 4)]
    assert await listed(src="ZH", tgt="en") == [("zh", "en", 3, 2, 5, 4)]
    assert await listed(tgt="fr") == []
    assert await listed(text=True) == [("de", "*", 1, 1, 3, 2), ("zh", "*", 3, 2, 5, 4)]


class Stream:
    """An Operate stream, its requests written by the test and its results kept by id."""

    def __init__(self, pool: Pool) -> None:
        self.call = pool.stub.Operate()
        self.results: dict[int, pool_pb2.OperationResult] = {}
        self.messages = 0

    async def send(self, *operations: pool_pb2.Operation) -> None:
        await self.call.write(pool_pb2.OperateRequest(operations=operations))

    async def receive(self, messages: int) -> None:
        """Takes in so many messages."""
        for _ in range(messages):
            answer = await self.call.read()
            assert isinstance(answer, pool_pb2.OperateResponse), "the stream ended"
            self._keep(answer)

    async def receive_rest(self) -> grpc.StatusCode:
        """Takes in what comes until the stream ends, and says how it ended."""
        while (answer := await self.call.read()) is not grpc.aio.EOF:
            self._keep(answer)
        return await self.call.code()

    def _keep(self, answer: pool_pb2.OperateResponse) -> None:
        self.messages += 1
        for result in answer.results:
            assert result.id not in self.results, "answered twice"
            self.results[result.id] = result


def op(number: int, **operation: Any) -> pool_pb2.Operation:
    return pool_pb2.Operation(id=number, **operation)


async def test_one_message_carries_operations_of_every_kind_and_errors_stay_their_own(
    pool: Pool,
) -> None:
    epoch = (await pool.register("n1", slots=5)).epoch
    for job_id in ("done", "given-back"):
        await pool.stub.Allocate(allocation(job_id))
    await pool.stub.Commit(commit("done"))
    session = {"session_id": "s1", "pair": pair("zh>en"), "node_id": "n1"}
    stream = Stream(pool)
    await stream.send(
        op(1, select_node=pool_pb2.SelectNodeRequest(criteria=criteria())),
        op(2, allocate=allocation("j1")),
        op(3, reserve=pool_pb2.ReserveRequest(node_id="n1", attempt=ref("j2"))),
        op(4, commit=commit("unheard-of", "n9")),
        op(5, release=release("given-back")),
        op(6, complete=complete("done")),
        op(
            7,
            bind_session=pool_pb2.BindSessionRequest(kind=pool_pb2.BINDING_KIND_TIMEOUT, **session),
        ),
        op(8, clear_session=pool_pb2.ClearSessionRequest(session_id="s2", pairs=[pair("zh>en")])),
        op(9, heartbeat=pool_pb2.HeartbeatRequest(beats=[beat("n1", epoch), beat("n9", 1)])),
        op(10, set_node_health=pool_pb2.SetNodeHealthRequest(node_id="n1", health=READY)),
        op(11),
        op(12, allocate=allocation("bad id")),
        op(13, allocate=allocation("j3", wants=criteria("fr>en"))),
        op(2**64 - 1, commit=commit("done", "n9")),
    )
    await stream.receive(1)
    results = stream.results
    assert results[1].select_node.placement.node_id == "n1"
    assert results[2].allocate.attempt == ref("j1")
    assert results[3].reserve.placement.path == pool_pb2.PLACEMENT_PATH_NAMED
    assert results[4].commit.outcome == Commit.OUTCOME_COMMITTED_LATE
    assert results[5].release.outcome == Release.OUTCOME_RELEASED
    assert results[6].complete.state == common_pb2.JOB_STATE_DONE
    assert results[7].bind_session.bound
    assert results[8].HasField("clear_session")
    assert [problem.node_id for problem in results[9].heartbeat.problems] == ["n9"]
    assert results[10].set_node_health.node.node_id == "n1"
    for number, expected, field in (
        (11, "INVALID_MESSAGE", ["operation"]),
        (12, "INVALID_MESSAGE", ["job_id"]),
        (13, "NO_CAPABLE_NODE", []),
    ):
        assert reason(results[number].error) == expected
        assert [it.field for it in results[number].error.field_violations] == field
    assert results[2**64 - 1].commit.outcome == Commit.OUTCOME_SUPERSEDED
    await stream.call.done_writing()
    assert await stream.receive_rest() == grpc.StatusCode.OK


async def test_many_messages_are_under_way_at_once_and_every_operation_is_answered_once(
    pool: Pool,
) -> None:
    await pool.register("n1", slots=1000)
    stream = Stream(pool)
    receiving = asyncio.create_task(stream.receive_rest())
    for message in range(200):
        await stream.send(
            *(op(n, allocate=allocation(f"j{n}")) for n in range(message * 5, message * 5 + 5))
        )
    await stream.call.done_writing()
    assert await receiving == grpc.StatusCode.OK
    assert stream.messages == 200
    assert stream.results.keys() == set(range(1000))
    refused = [reason(it.error) for it in stream.results.values() if it.HasField("error")]
    assert refused == []
    assert (await pool.node("n1")).node.reserved == 1000


async def test_a_message_of_a_thousand_operations_is_taken_and_one_more_ends_the_stream(
    pool: Pool,
) -> None:
    await pool.register("n1", slots=1000)
    stream = Stream(pool)
    await stream.send(*(op(n, allocate=allocation(f"j{n}")) for n in range(1000)))
    await stream.send(*(op(n) for n in range(1000, 2001)))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stream.receive_rest()
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "at most 1000" in str(caught.value.details())
    assert stream.results.keys() == set(range(1000))


async def test_a_half_closed_stream_is_answered_in_full(pool: Pool) -> None:
    await pool.register("n1", slots=1000)

    async def requests() -> AsyncIterator[pool_pb2.OperateRequest]:
        for n in range(100):
            yield pool_pb2.OperateRequest(operations=[op(n, allocate=allocation(f"j{n}"))])

    answered = [
        result.id async for answer in pool.stub.Operate(requests()) for result in answer.results
    ]
    assert sorted(answered) == list(range(100))


async def test_an_empty_message_is_answered_and_a_cancelled_stream_harms_nobody(
    pool: Pool,
) -> None:
    await pool.register("n1")
    stream, other = Stream(pool), Stream(pool)
    await stream.send()
    await stream.receive(1)
    await stream.send(*(op(n, allocate=allocation(f"j{n}")) for n in range(500)))
    stream.call.cancel()
    await other.send(op(1, select_node=pool_pb2.SelectNodeRequest(criteria=criteria())))
    await other.receive(1)
    assert other.results.keys() == {1}
    other.call.cancel()


async def test_a_drain_answers_what_was_asked_and_then_ends_the_streams(
    redis_url: str, prefix: str
) -> None:
    async with running_pool(redis_url, prefix, drain_grace_ms=20_000) as pool:
        await pool.register("n1", slots=1000)
        busy, idle = Stream(pool), Stream(pool)
        await idle.send(op(1, select_node=pool_pb2.SelectNodeRequest(criteria=criteria())))
        await idle.receive(1)
        for n in range(50):
            await busy.send(op(n, allocate=allocation(f"j{n}")))
        await busy.receive(1)
        pool.process.terminate()
        codes = await asyncio.wait_for(
            asyncio.gather(busy.receive_rest(), idle.receive_rest()), timeout=10
        )
        assert codes == [grpc.StatusCode.OK, grpc.StatusCode.OK]
        # What was read was done and answered; what was not read was not done.
        reserved = {member.decode() for members in pool.leases().values() for member in members}
        assert {f"j{n}:1" for n in busy.results} == reserved
        assert await asyncio.to_thread(pool.process.wait_end, 10) == 0


class Collector(trace_service_pb2_grpc.TraceServiceServicer):  # type: ignore[misc]
    """Keeps the spans that it is sent."""

    def __init__(self) -> None:
        self.spans: list[Any] = []

    async def Export(self, request: Any, context: object) -> Any:  # noqa: N802
        for resource in request.resource_spans:
            for scope in resource.scope_spans:
                self.spans.extend(scope.spans)
        return trace_service_pb2.ExportTraceServiceResponse()


async def test_an_operation_carries_its_trace_through_to_the_script(
    redis_url: str, prefix: str
) -> None:
    collector, server = Collector(), grpc.aio.server()
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(collector, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    process = PoolProcess(
        redis_url=redis_url,
        prefix=prefix,
        environ={"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}"},
    )
    process.start()
    trace_id, span_id = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    try:
        await asyncio.to_thread(process.wait_ready)
        async with connected(process, redis_url) as pool:
            await pool.register("n1")
            stream = Stream(pool)
            await stream.send(
                op(1, allocate=allocation("j1"), traceparent=f"00-{trace_id}-{span_id}-01"),
                op(2, allocate=allocation("j2"), traceparent="nonsense"),
            )
            await stream.receive(1)
            assert all(result.HasField("allocate") for result in stream.results.values())
            await stream.call.done_writing()
            await stream.receive_rest()
        process.terminate()
        assert await asyncio.to_thread(process.wait_end, 15) == 0
    finally:
        await asyncio.to_thread(process.stop)
        await server.stop(None)
    ours = {span.name: span for span in collector.spans if span.trace_id.hex() == trace_id}
    assert ours.keys() == {"pool allocate", "EVALSHA allocate"}
    assert ours["pool allocate"].parent_span_id.hex() == span_id
    assert ours["EVALSHA allocate"].parent_span_id == ours["pool allocate"].span_id


def samples(process: PoolProcess) -> dict[str, float]:
    """The pool's own metrics as /metrics shows them."""
    with urllib.request.urlopen(f"http://{process.metrics_address}/metrics", timeout=5) as answer:
        lines: Iterable[str] = answer.read().decode().splitlines()
    found = (re.fullmatch(r"(lingua_pool_\S+) (\S+)", line) for line in lines)
    return {match[1]: float(match[2]) for match in found if match}


async def test_metrics_count_what_happened_and_show_the_fleet(redis_url: str, prefix: str) -> None:
    async with running_pool(redis_url, prefix) as pool:
        epoch = (await pool.register("n1", slots=2)).epoch
        await pool.register("n2", slots=3, asr=("de",))
        await pool.register("n3", slots=4, health=DRAINING)
        await problems(pool, beat("n1", epoch), beat("n9", 1))
        first = allocation("j1", session_id="s1", reason=common_pb2.FINALIZE_REASON_MAX_DURATION)
        await pool.stub.Allocate(first)
        await pool.stub.Allocate(first)
        await pool.stub.Commit(commit("j1"))
        await pool.stub.Allocate(allocation("j2", session_id="s1", utterance_index=1))
        await failure(pool.stub.Allocate(allocation("j3")))
        await failure(pool.stub.Allocate(allocation("j3", wants=criteria("fr>en"))))
        await pool.stub.Release(release("j2", cause=pool_pb2.RELEASE_CAUSE_ACK_TIMEOUT))
        await pool.stub.Complete(complete("j1"))
        await pool.stub.Allocate(allocation("j4", wants=criteria(preferred_node_id="n1")))

        seen = await asyncio.to_thread(samples, pool.process)
        for name, expected in {
            'lingua_pool_allocations_total{outcome="reserved"}': 3,
            'lingua_pool_allocations_total{outcome="existing"}': 1,
            'lingua_pool_allocations_total{outcome="all_candidates_full_or_failed"}': 1,
            'lingua_pool_allocations_total{outcome="no_capable_node"}': 1,
            'lingua_pool_placements_total{path="pool"}': 1,
            'lingua_pool_placements_total{path="max_duration_binding"}': 1,
            'lingua_pool_placements_total{path="preferred"}': 1,
            'lingua_pool_affinity_total{kind="max_duration",outcome="hit"}': 1,
            "lingua_pool_empty_total": 1,
            'lingua_pool_commits_total{outcome="committed"}': 1,
            'lingua_pool_releases_total{cause="ack_timeout"}': 1,
            'lingua_pool_completions_total{outcome="done"}': 1,
            "lingua_pool_beats_total": 2,
            "lingua_pool_selection_seconds_count": 6,
            "lingua_pool_redis_up": 1,
        }.items():
            assert seen.get(name) == expected, name
        assert not any("node_id" in name or "session" in name for name in seen)

        # Gauges show what all instances share; a new instance reads them as soon as it starts.
        async with running_pool(redis_url, prefix) as second:
            while True:
                seen = await asyncio.to_thread(samples, second.process)
                if seen["lingua_pool_sampled_timestamp_seconds"] > 0:
                    break
                await asyncio.sleep(0.02)
            gauges = {
                name: value
                for name, value in seen.items()
                if name.startswith(("lingua_pool_nodes{", "lingua_pool_slots", "lingua_pool_free"))
            }
            assert gauges == {
                'lingua_pool_nodes{health="ready"}': 2,
                'lingua_pool_nodes{health="degraded"}': 0,
                'lingua_pool_nodes{health="draining"}': 1,
                'lingua_pool_nodes{health="offline"}': 0,
                'lingua_pool_slots{kind="speech",src="zh",tgt="en"}': 2,
                'lingua_pool_slots{kind="speech",src="de",tgt="en"}': 3,
                'lingua_pool_slots{kind="text",src="zh",tgt="any"}': 2,
                'lingua_pool_slots{kind="text",src="de",tgt="any"}': 3,
                'lingua_pool_free_slots{kind="speech",src="zh",tgt="en"}': 1,
                'lingua_pool_free_slots{kind="speech",src="de",tgt="en"}': 3,
                'lingua_pool_free_slots{kind="text",src="zh",tgt="any"}': 1,
                'lingua_pool_free_slots{kind="text",src="de",tgt="any"}': 3,
            }


async def test_the_service_says_that_it_serves_and_keeps_serving_beside_a_second_one(
    pool: Pool, redis_url: str
) -> None:
    assert await pool.health() == health_pb2.HealthCheckResponse.SERVING
    await pool.register("n1", slots=1)
    async with running_pool(redis_url, pool.prefix) as second:
        await second.stub.Allocate(allocation("j1"))
        assert (await failure(pool.stub.Allocate(allocation("j2"))))[:2] == FULL
        assert (await pool.stub.Commit(commit("j1"))).outcome == Commit.OUTCOME_COMMITTED
    assert (await pool.stub.Complete(complete("j1"))).outcome == Complete.OUTCOME_COMPLETED


async def test_a_registration_with_jobs_still_running_keeps_their_slots_and_drops_the_others(
    pool: Pool,
) -> None:
    await pool.stub.RegisterNode(registration("n1", slots=3))
    for job_id in ("kept", "dropped"):
        await pool.stub.Allocate(allocation(job_id))
        await pool.stub.Commit(commit(job_id))
    await pool.register("n1", slots=3, stream_id="s2", running=[ref("kept")])
    assert [lease.attempt.job_id for lease in (await pool.node("n1")).leases] == ["kept"]
