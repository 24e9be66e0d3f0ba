"""Nodes at one real dispatcher: who comes, who goes, who lies, and what outlives whom."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from functools import partial

import grpc
import pytest

from lingua_scheduler.services.runtime.redis.embedded import EmbeddedRedis
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, pool_pb2
from lingua_scheduler.v1.dispatcher_pb2 import NodeEvent
from tests.support.pool_client import ref, running_pool
from tests.support.raw_node import RawNode, whoever_gets_it
from tests.support.rpc_errors import failure, reason
from tests.support.scene import Scene, scene, together
from tests.support.services import PoolProcess, running_dispatcher

OFFLINE = common_pb2.NODE_HEALTH_OFFLINE
READY = common_pb2.NODE_HEALTH_READY


def is_ready(node: pool_pb2.Node | None) -> bool:
    return node is not None and node.health == READY


def is_offline(node: pool_pb2.Node | None) -> bool:
    return node is not None and node.health == OFFLINE


def has_health(health: common_pb2.NodeHealth.ValueType, node: pool_pb2.Node | None) -> bool:
    return node is not None and node.health == health


def is_free(node: pool_pb2.Node | None) -> bool:
    return node is not None and node.running == node.reserved == 0


def runs_one(node: pool_pb2.Node | None) -> bool:
    return node is not None and node.running == 1


@pytest.fixture
async def brisk(pool_process: PoolProcess, redis_url: str) -> AsyncIterator[Scene]:
    """A dispatcher of the test's own, which passes heartbeats on at once."""
    async with (
        running_dispatcher(pool_process, redis_url, heartbeat_batch_ms=50) as process,
        scene(process, pool_process) as made,
    ):
        yield made


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


# ---- others that end ----


async def test_sigterm_finishes_what_is_in_flight_and_sends_the_nodes_elsewhere(
    brisk: Scene,
) -> None:
    nodes, gateway = [await brisk.node(name) for name in "ab"], brisk.gateway()
    job = await gateway.submit(brisk.spec())
    node, assign = await whoever_gets_it(nodes)
    await node.ack(assign)
    await gateway.accepted(job)

    brisk.dispatcher.terminate()
    await brisk.drains()
    refused = await gateway.submit(brisk.spec(1))
    assert reason(await gateway.failed(refused)) == "DRAINING"
    request = dispatcher_pb2.DispatchRequest(job=brisk.spec(2))
    assert (await failure(brisk.stub.Dispatch(request)))[1] == "DRAINING"
    await node.result(assign)
    await gateway.delivered(job)
    for each in nodes:
        await each.expect("reconnect")
        await each.cut()
    assert await brisk.dispatcher.exit_code() == 0


async def test_a_result_that_nobody_took_before_the_end_is_kept(brisk: Scene) -> None:
    node, gateway = await brisk.node(), brisk.gateway()
    job = await gateway.submit(brisk.spec())
    assign = await node.take_job()
    await gateway.accepted(job)
    brisk.dispatcher.terminate()
    await brisk.drains()
    await node.result(assign, "kept")
    await gateway.delivered(job, take=False)
    await node.expect_received(assign)
    await node.expect("reconnect")
    await node.cut()
    assert await brisk.dispatcher.exit_code() == 0

    await brisk.dispatcher.restart()
    following = brisk.gateway()
    await following.attach(job)
    assert (await following.delivered(job)).result.texts.translated == "kept"


async def test_the_streams_of_other_dispatchers_do_not_keep_a_drained_one(
    brisk: Scene, patient: Scene
) -> None:
    node, gateway = await brisk.node(), patient.gateway()
    job = await gateway.submit(brisk.spec())
    assign = await node.take_job()
    assert (await gateway.accepted(job)).node_id == node.node_id
    await node.result(assign)
    await gateway.delivered(job)
    await node.expect_received(assign)

    brisk.dispatcher.terminate()
    await node.expect("reconnect")
    await node.cut()
    # Long before the grace period is over.
    assert await brisk.dispatcher.exit_code(within=10) == 0


async def test_the_pool_service_can_be_restarted_under_it(redis_url: str, prefix: str) -> None:
    async with running_pool(redis_url, prefix, redis_timeout_ms=4000) as pool:
        process = pool.process
        async with (
            running_dispatcher(process, redis_url, heartbeat_batch_ms=50) as dispatcher,
            scene(dispatcher, process) as made,
        ):
            node, gateway = await made.node(slots=2), made.gateway()
            job = await gateway.submit(made.spec())
            assign = await node.take_job()
            await gateway.accepted(job)

            process.process.kill()
            process.process.wait()
            refused = await gateway.submit(made.spec(9))
            assert reason(await gateway.failed(refused)) == "SCHEDULER_DEPENDENCY_DOWN"
            await node.result(assign)
            await gateway.delivered(job)
            again = PoolProcess(
                redis_url=redis_url,
                prefix=prefix,
                redis_timeout_ms=4000,
                pool_listen=process.address,
            )
            again.start()
            try:
                await asyncio.to_thread(again.wait_ready)
                # The slot of the first job is given back as soon as somebody takes it.
                await made.until(node, is_free)
                for index in (1, 2):
                    job = await gateway.submit(made.spec(index))
                    assert (await node.take_job()).attempt.job_id == job
            finally:
                await asyncio.to_thread(again.stop)


async def test_a_redis_that_comes_back_empty_gets_its_nodes_again(
    own_redis: EmbeddedRedis, prefix: str
) -> None:
    async with (
        running_pool(own_redis.url, prefix) as pool,
        running_dispatcher(
            pool.process,
            own_redis.url,
            redis_timeout_ms=400,
            node_heartbeat_ms=600,
            heartbeat_batch_ms=50,
        ) as dispatcher,
        scene(dispatcher, pool.process) as made,
    ):
        node, gateway = await made.node(slots=2, beats=False), made.gateway()
        job = await gateway.submit(made.spec())
        assign = await node.take_job()
        await gateway.accepted(job)
        await made.until(node, runs_one)
        beating = asyncio.create_task(_beat(node, assign.attempt))

        own_redis.kill()
        await asyncio.to_thread(own_redis.restart)
        await pool.serves(30)
        # With the slot of what it runs.
        await made.until(node, lambda known: is_ready(known) and runs_one(known))
        second = await gateway.submit(made.spec(1))
        assert (await node.take_job()).attempt.job_id == second
        await node.result(assign)
        await gateway.delivered(job)
        beating.cancel()


async def _beat(node: RawNode, *running: common_pb2.AttemptRef) -> None:
    while True:
        await node.heartbeat(running=running)
        await asyncio.sleep(0.2)


# ---- reports that nobody waits for ----


@pytest.fixture
async def forgetful(pool_process: PoolProcess, redis_url: str) -> AsyncIterator[Scene]:
    """A dispatcher that soon takes an attempt for nobody's."""
    async with (
        running_dispatcher(
            pool_process,
            redis_url,
            node_reconnect_grace_ms=1000,
            limits={"home.orphans._CHECK_EVERY_S": 0.2},
        ) as process,
        scene(process, pool_process) as made,
    ):
        yield made


@pytest.mark.parametrize("end", ["result", "failure"])
async def test_what_nobody_knows_is_confirmed_so_that_its_node_may_forget_it(
    forgetful: Scene, end: str
) -> None:
    unknown = ref(f"unknown-{forgetful.src}")
    node = await forgetful.node(unconfirmed=[unknown])
    assign = dispatcher_pb2.JobAssign(attempt=unknown)
    if end == "result":
        await node.result(assign)
    else:
        await node.fail(assign, worth_retry=True)
    await node.expect_received(assign)


async def test_a_result_of_another_node_s_attempt_is_confirmed_and_changes_nothing(
    patient: Scene,
) -> None:
    node, gateway = await patient.node(), patient.gateway()
    job = await gateway.submit(patient.spec())
    assign = await node.take_job()
    stranger = await patient.node("stranger")
    await stranger.result(assign, "forged")
    await stranger.expect_received(assign)
    await node.result(assign, "true")
    assert (await gateway.delivered(job)).result.texts.translated == "true"


async def test_a_result_that_is_wanted_stays_with_its_node_until_its_home_has_it(
    pool_process: PoolProcess, redis_url: str
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        processes = [
            await stack.enter_async_context(
                running_dispatcher(
                    pool_process, redis_url, limits={"home.orphans._CHECK_EVERY_S": 0.1}
                )
            )
            for _ in range(2)
        ]
        home, other = await stack.enter_async_context(together(processes, pool_process))
        node, gateway = await home.node(), home.gateway()
        job = await gateway.submit(home.spec())
        assign = await node.take_job()
        await gateway.accepted(job)
        await node.cut()
        # It comes back elsewhere, with the result; that one cannot know whose it is.
        back = await other.node(unconfirmed=[assign.attempt])
        await back.result(assign, "first")
        again = await back.expect_assign()
        assert again.attempt == assign.attempt
        assert [each for each in await back.settled() if each == "result_received"] == []
        await back.result(again, "again")
        await gateway.delivered(job)
        await back.expect_received(assign)


# ---- partial results ----


async def test_more_partial_results_than_were_asked_for_are_dropped(patient: Scene) -> None:
    node, gateway = await patient.node(), patient.gateway()
    job = await gateway.submit(patient.spec(partial_interval_ms=60_000))
    assign = await node.take_job()
    before = await patient.dispatcher.metric("lingua_dispatcher_partials_dropped_total")
    for seq in range(1, 51):
        await node.partial(assign, f"word {seq}", seq)
    await node.result(assign)
    await gateway.delivered(job)
    partials = [each for each in gateway.inbox.waiting if each.HasField("partial")]
    assert [each.partial.texts.source for each in partials] == ["word 1"]
    dropped = await patient.dispatcher.metric("lingua_dispatcher_partials_dropped_total")
    assert dropped - before == 49


async def test_where_no_partial_results_are_wanted_none_is_passed_on(patient: Scene) -> None:
    node, gateway = await patient.node(), patient.gateway()
    job = await gateway.submit(patient.spec())
    assign = await node.take_job()
    await node.partial(assign, "word")
    await node.result(assign)
    await gateway.delivered(job)
    assert not [each for each in gateway.inbox.waiting if each.HasField("partial")]
