"""Nodes at one real dispatcher: who comes, who goes, who lies, and what outlives whom."""

import asyncio
from functools import partial

import grpc
import pytest

from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, pool_pb2
from lingua_scheduler.v1.dispatcher_pb2 import NodeEvent
from tests.support.cells import in_one_cell
from tests.support.pool_client import ref
from tests.support.raw_node import whoever_gets_it
from tests.support.rpc_errors import failure, reason
from tests.support.scene import Scene

OFFLINE = common_pb2.NODE_HEALTH_OFFLINE
READY = common_pb2.NODE_HEALTH_READY


def is_offline(node: pool_pb2.Node | None) -> bool:
    return node is not None and node.health == OFFLINE


def has_health(health: common_pb2.NodeHealth.ValueType, node: pool_pb2.Node | None) -> bool:
    return node is not None and node.health == health


# ---- coming ----


async def test_a_node_is_welcome_and_its_heartbeats_are_answered(patient: Scene) -> None:
    node = patient.peer(patient.hello(slots=3))
    welcome = await node.open()

    assert welcome.epoch > 0
    assert welcome.instance_id
    assert welcome.heartbeat_interval_ms == 5000
    assert welcome.max_message_bytes == 4_194_304
    for _ in range(3):
        assert await node.settled() == []
    known = await patient.known_node(node)
    assert known is not None
    assert (known.health, known.max_concurrent_jobs, known.epoch) == (READY, 3, welcome.epoch)
    assert known.owner_address == patient.dispatcher.address


async def test_another_node_with_the_same_id_is_refused_while_the_first_lives(
    patient: Scene,
) -> None:
    first, gateway = await patient.node(), patient.gateway()
    error = await patient.peer(patient.hello(incarnation="another")).refused()

    assert reason(error) == "NODE_ID_CONFLICT"
    await gateway.submit(patient.spec())
    await first.take_job()
    await first.cut()
    await patient.until(first, is_offline)
    await patient.node(incarnation="another")


async def test_a_new_connection_of_the_same_process_takes_over_with_what_runs(
    patient: Scene,
) -> None:
    old, gateway = await patient.node(slots=2), patient.gateway()
    jobs = [await gateway.submit(patient.spec(index)) for index in (0, 1)]
    runs, lost = await old.take_job(), await old.take_job()
    for job in jobs:
        await gateway.accepted(job)

    new = await patient.node(slots=2, running=[runs.attempt])
    error = (await old.expect("error")).error

    assert reason(error) == "NODE_EPOCH_OLD"
    assert await old.ended_for() == error
    assert await old.status() is grpc.StatusCode.ABORTED
    assert new.epoch > old.epoch
    # What it does not run any more is sent to it once more.
    await new.result(runs)
    await gateway.delivered(runs.attempt.job_id)
    again = await new.take_job()
    assert again.attempt == lost.attempt
    await new.result(again)
    await gateway.delivered(again.attempt.job_id)


async def test_the_late_goodbye_of_an_old_connection_does_not_remove_the_new_one(
    patient: Scene,
) -> None:
    old, gateway = await patient.node(), patient.gateway()
    new = await patient.node()
    await old.ended()
    await old.cut()
    another_old = new
    new = patient.peer(patient.hello())
    opening = asyncio.create_task(new.open())
    await another_old.say(NodeEvent(bye=dispatcher_pb2.Bye()))
    await opening

    await another_old.ended()
    assert await new.settled() == []
    known = await patient.known_node(new)
    assert known is not None
    assert (known.health, known.epoch) == (READY, new.epoch)
    job = await gateway.submit(patient.spec())
    assert (await new.take_job()).attempt.job_id == job


@pytest.mark.parametrize(
    "event",
    [
        NodeEvent(),
        NodeEvent(heartbeat=dispatcher_pb2.Heartbeat(seq=1)),
        NodeEvent(job_ack=dispatcher_pb2.JobAck(attempt=ref("x"))),
        NodeEvent(bye=dispatcher_pb2.Bye()),
    ],
    ids=["nothing", "heartbeat", "ack", "bye"],
)
async def test_whoever_does_not_say_hello_first_is_refused(
    patient: Scene, event: NodeEvent
) -> None:
    error = await patient.peer(patient.hello()).refused(event)
    assert reason(error) == "INVALID_MESSAGE"
    assert [each.field for each in error.field_violations] == ["events[0].hello"]


async def test_whoever_says_nothing_at_all_is_refused(patient: Scene) -> None:
    said_to_it = []

    async def listen() -> None:
        async for message in patient.stub.Connect(iter(())):
            said_to_it.extend(message.events)

    code, why, said = await failure(listen())
    assert [each.error for each in said_to_it] == [said]
    assert (code, why) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_MESSAGE")
    assert [each.field for each in said.field_violations] == ["events[0].hello"]


async def test_a_node_whose_languages_do_not_fit_together_is_told_that_it_is_in_no_pool(
    patient: Scene,
) -> None:
    fits = await patient.peer(patient.hello("fits")).open()
    assert (fits.HasField("pools"), fits.pools) == (True, 2)  # speech, and text into any language
    useless = common_pb2.NodeCapabilities(
        asr_langs=[patient.src], semantic_langs=[patient.tgt], tts_langs=[patient.tgt]
    )
    welcome = await patient.peer(patient.hello("useless", capabilities=useless)).open()
    assert (welcome.HasField("pools"), welcome.pools) == (True, 0)
    log = patient.dispatcher.log()
    assert log.count("node is in no pool") == 1
    assert f'"node_id": "{patient.src}-useless"' in log


async def test_a_second_hello_ends_the_stream_with_a_reason(patient: Scene) -> None:
    node = await patient.node()
    error = await node.refused(NodeEvent(hello=node.hello))
    assert reason(error) == "INVALID_MESSAGE"
    assert "hello" in error.message
    await patient.until(node, is_offline)


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        (
            {"capabilities": common_pb2.NodeCapabilities(tts_langs=["es"])},
            {"capabilities.asr_langs", "capabilities.semantic_langs"},
        ),
        ({"node_id": "no id"}, {"node_id"}),
        ({"max_concurrent_jobs": 0}, {"max_concurrent_jobs"}),
        ({"incarnation": ""}, {"incarnation"}),
        ({"load": common_pb2.NodeLoad(cpu=float("nan"))}, {"load.cpu"}),
        ({"running": [common_pb2.AttemptRef()]}, {"running[0].job_id", "running[0].attempt"}),
    ],
    ids=["languages", "node_id", "slots", "incarnation", "load", "running"],
)
async def test_a_hello_that_makes_no_sense_is_refused_by_the_names_of_its_fields(
    patient: Scene, changes: dict[str, object], fields: set[str]
) -> None:
    hello = patient.hello()
    for name in changes:
        hello.ClearField(name)  # type: ignore[arg-type]
    hello.MergeFrom(dispatcher_pb2.Hello(**changes))  # type: ignore[arg-type]
    error = await patient.peer(hello).refused()
    assert reason(error) == "INVALID_MESSAGE"
    assert {each.field for each in error.field_violations} == fields


# ---- going ----


async def test_goodbye_removes_a_node(patient: Scene) -> None:
    node, gateway = await patient.node(), patient.gateway()
    await node.bye()
    await patient.until(node, lambda known: known is None)
    job = await gateway.submit(patient.spec())
    assert reason(await gateway.failed(job)) == "NO_CAPABLE_NODE"


async def test_a_node_whose_stream_ends_is_out_of_selection_at_once(patient: Scene) -> None:
    nodes, gateway = [await patient.node(name) for name in "ab"], patient.gateway()
    await nodes[0].cut()
    await patient.until(nodes[0], is_offline)
    job = await gateway.submit(patient.spec())
    assert (await nodes[1].take_job()).attempt.job_id == job


async def test_a_node_that_drains_or_is_degraded_gets_no_jobs(brisk: Scene) -> None:
    nodes, gateway = {name: await brisk.node(name, beats=False) for name in "abc"}, brisk.gateway()
    for name, health in (
        ("a", common_pb2.NODE_HEALTH_DRAINING),
        ("b", common_pb2.NODE_HEALTH_DEGRADED),
    ):
        await nodes[name].heartbeat(health=health)
        await brisk.until(nodes[name], partial(has_health, health))
    for index in range(3):
        job = await gateway.submit(brisk.spec(index))
        assign = await nodes["c"].take_job()
        await nodes["c"].result(assign)
        await gateway.delivered(job)


# ---- lying ----


async def test_results_of_jobs_that_never_were_do_no_harm(patient: Scene) -> None:
    node, gateway = await patient.node(), patient.gateway()
    never = dispatcher_pb2.JobAssign(attempt=ref("never-was"))
    await node.ack(never)
    await node.result(never)
    await node.fail(never, worth_retry=True)
    await node.reject(never)
    await node.partial(never, "x")
    await node.held(never)
    assert await node.settled() == []

    job = await gateway.submit(patient.spec())
    assign = await node.take_job()
    other = dispatcher_pb2.JobAssign(attempt=ref(job, 7))
    await node.result(other, "of an attempt that never was")
    await node.expect_received(other)
    await node.result(assign, "right")
    assert (await gateway.delivered(job)).result.texts.translated == "right"


async def test_a_node_cannot_speak_for_the_job_of_another(patient: Scene) -> None:
    right, gateway = await patient.node("a"), patient.gateway()
    job = await gateway.submit(patient.spec())
    assign = await right.expect_assign()
    liar = await patient.node("b")

    await liar.ack(assign)
    await liar.reject(assign)
    await liar.partial(assign, "a lie")
    await liar.result(assign, "a lie")
    await liar.fail(assign, worth_retry=False)
    await liar.settled()
    assert await gateway.settled() == []

    await right.ack(assign)
    assert (await gateway.accepted(job)).node_id == right.node_id
    await right.result(assign, "the truth")
    delivered = await gateway.delivered(job, take=False)
    assert delivered.result.texts.translated == "the truth"
    await liar.result(assign, "a lie")
    await liar.settled()
    assert await right.settled() == []
    await gateway.taken(job)
    await right.expect_received(assign)
    assert await gateway.settled() == []


async def test_a_node_cannot_take_up_the_lost_job_of_another(patient: Scene) -> None:
    right, gateway = await patient.node("a"), patient.gateway()
    job = await gateway.submit(patient.spec())
    assign = await right.take_job()
    await gateway.accepted(job)
    await right.cut()

    liar = await patient.node("b", running=[assign.attempt])
    assert await liar.settled() == []
    back = await patient.node("a", running=[assign.attempt])
    assert (await back.take_job()).attempt == assign.attempt
    await back.result(assign)
    assert (await gateway.delivered(job)).node_id == back.node_id


async def test_a_node_that_comes_with_what_has_no_slot_is_told_so_before_it_gets_anything(
    patient: Scene,
) -> None:
    """Its next heartbeat would be too late: until then it would run more than it may."""
    claimed = [ref(f"came-with-{number}") for number in range(3)]
    node = patient.peer(patient.hello(running=claimed))
    welcome = await node.open()
    # One of them has the one slot, since nobody knows better.
    assert len(welcome.cancelled) == 2
    assert {each.job_id for each in welcome.cancelled} < {each.job_id for each in claimed}


async def test_a_node_that_claims_to_run_more_than_it_may_is_told_to_stop(brisk: Scene) -> None:
    node, gateway = await brisk.node(beats=False), brisk.gateway()
    job = await gateway.submit(brisk.spec())
    assign = await node.take_job()
    await gateway.accepted(job)
    claimed = [ref(f"claimed-{number}") for number in range(4)]
    await node.heartbeat(running=[assign.attempt, *claimed])

    cancelled = [(await node.expect("job_cancel")).job_cancel.attempt for _ in claimed]
    assert sorted(each.job_id for each in cancelled) == [each.job_id for each in claimed]
    known = await brisk.known_node(node)
    assert known is not None
    assert (known.running, known.reserved, known.max_concurrent_jobs) == (1, 0, 1)
    await node.result(assign)
    await gateway.delivered(job)


@in_one_cell
async def test_a_node_that_always_rejects_is_not_asked_for_a_while(patient: Scene) -> None:
    good, bad = await patient.node("a", slots=50), await patient.node("b", slots=50)
    gateway, rejected = patient.gateway(), 0
    for index in range(30):
        # Each of another session, or the rejections might be for what that one says.
        job = await gateway.submit(patient.spec(index, session_id=f"s{index}-{patient.src}"))
        node, assign = await whoever_gets_it([good, bad])
        if node is bad:
            rejected += 1
            await bad.reject(assign)
            assign = await good.expect_assign()
        await good.ack(assign)
        await gateway.accepted(job)
    known = await patient.known_node(bad)
    assert known is not None
    assert rejected == 3
    assert known.ejected_until_ms > 0


@pytest.mark.parametrize(
    "beat",
    [
        dispatcher_pb2.Heartbeat(health=OFFLINE),
        dispatcher_pb2.Heartbeat(load=common_pb2.NodeLoad(cpu=float("nan"))),
        dispatcher_pb2.Heartbeat(load=common_pb2.NodeLoad(gpu=7)),
        dispatcher_pb2.Heartbeat(running=[common_pb2.AttemptRef(job_id="no id", attempt=1)]),
        dispatcher_pb2.Heartbeat(running=[ref(f"j{number}") for number in range(1001)]),
    ],
    ids=["offline", "nan", "load", "id", "many"],
)
async def test_a_heartbeat_that_makes_no_sense_ends_that_stream_and_no_other(
    brisk: Scene, beat: dispatcher_pb2.Heartbeat
) -> None:
    good, bad = await brisk.node("a"), await brisk.node("b", beats=False)
    error = await bad.refused(NodeEvent(heartbeat=beat))
    assert reason(error) == "INVALID_MESSAGE"
    assert all(each.field.startswith("heartbeat.") for each in error.field_violations)

    before = await brisk.known_node(good)
    assert before is not None
    await good.heartbeat(load=0.5)
    await brisk.until(good, lambda known: known is not None and known.load == 0.5)
