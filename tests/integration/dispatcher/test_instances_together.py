"""Several dispatchers over one pool service: nodes are connected to one, jobs run on another."""

import asyncio
import time
from collections.abc import Iterator

import pytest

from lingua_scheduler.services.runtime.rpc.channels import Dialer
from lingua_scheduler.services.runtime.settings.settings import load_settings
from lingua_scheduler.services.session_gateway.dispatcher_link import DispatcherLink
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2
from tests.support.cells import in_one_cell
from tests.support.process import SOON_S
from tests.support.raw_node import RawNode, whoever_gets_it
from tests.support.rpc_errors import reason
from tests.support.scene import Scene
from tests.support.services import DispatcherProcess, PoolProcess, all_running

TIMEOUT = common_pb2.FINALIZE_REASON_TIMEOUT
COUNT = 3


@pytest.fixture(scope="module")
def dispatchers(pool_process: PoolProcess, redis_url: str) -> Iterator[list[DispatcherProcess]]:
    """Three dispatchers with timeouts so long that no test reaches them."""
    processes = [
        DispatcherProcess(
            pool=pool_process,
            redis_url=redis_url,
            instance_id=f"d{at}",
            ack_timeout_ms=60_000,
            reservation_ttl_ms=90_000,
            queue_wait_ms=60_000,
            node_reconnect_grace_ms=60_000,
        )
        for at in range(COUNT)
    ]
    with all_running(processes):
        yield processes


async def test_a_job_is_relayed_to_its_node_and_all_that_the_node_says_comes_back(
    at: list[Scene],
) -> None:
    node, gateway = await at[0].node(), at[1].gateway()
    relayed = await at[1].dispatcher.metric("lingua_dispatcher_relayed_total")
    job = await gateway.submit(at[1].spec(partial_interval_ms=100))
    assign = await node.take_job()
    assert assign.job.audio == at[1].spec().audio
    assert (await gateway.accepted(job)).node_id == node.node_id
    await node.partial(assign, "hel")
    assert (await gateway.expect(job, "partial")).partial.texts.source == "hel"
    await node.result(assign, "hello")
    delivered = await gateway.delivered(job, take=False)
    assert (delivered.result.texts.translated, delivered.node_id) == ("hello", node.node_id)
    assert await node.settled() == []  # the gateway has not taken it

    await gateway.taken(job)
    await node.expect_received(assign)
    assert await gateway.settled() == []
    assert await at[1].dispatcher.metric("lingua_dispatcher_relayed_total") == relayed + 1


async def test_an_order_that_comes_late_does_not_overfill_a_node(at: list[Scene]) -> None:
    """Its home lost the relay to the node and gave the slot back; another job has the slot now."""
    node, gateway = await at[0].node(beats=False), at[0].gateway()
    job = await gateway.submit(at[0].spec())
    assign = await node.take_job()
    await gateway.accepted(job)
    late = dispatcher_pb2.RelayOrder(home_instance="late", node_id=node.node_id)
    late.assign.attempt.CopyFrom(common_pb2.AttemptRef(job_id="0" * 32, attempt=1))
    late.assign.job.CopyFrom(at[0].spec(1))
    home = at[0].stub.Relay()
    await home.write(dispatcher_pb2.RelayRequest(orders=[late]))
    response = await home.read()
    assert isinstance(response, dispatcher_pb2.RelayResponse)
    assert "all slots of the node are taken" in response.reports[0].not_sent.message
    await node.heartbeat(running=[assign.attempt])
    assert await node.settled() == []

    await node.result(assign)
    await gateway.delivered(job)
    await home.write(dispatcher_pb2.RelayRequest(orders=[late]))
    assert (await node.expect_assign()).attempt == late.assign.attempt
    home.cancel()


async def test_a_job_that_is_rejected_behind_one_dispatcher_goes_to_a_node_behind_another(
    at: list[Scene],
) -> None:
    nodes = [await at[0].node("a"), await at[2].node("c")]
    gateway = at[1].gateway()
    job = await gateway.submit(at[1].spec())
    first, assign = await whoever_gets_it(nodes)
    await first.reject(assign, detail="not today")
    assert (await gateway.retrying(job)).why.message.endswith("rejected: FULL")
    other = next(node for node in nodes if node is not first)
    again = await other.take_job()
    assert again.attempt.attempt == assign.attempt.attempt + 1
    await other.result(again, "from the other")
    assert (await gateway.delivered(job)).result.texts.translated == "from the other"
    await other.expect_received(again)
    # The node's own description is for operators only.
    assert (await at[1].ended(job)).attempts[0].detail == "rejected: not today"


@pytest.mark.parametrize("worth_retry", [True, False])
async def test_a_failure_behind_another_dispatcher_is_retried(
    at: list[Scene], worth_retry: bool
) -> None:
    nodes = [await at[0].node("a"), await at[2].node("c")]
    gateway = at[1].gateway()
    job = await gateway.submit(at[1].spec())
    first, assign = await whoever_gets_it(nodes)
    await first.ack(assign)
    await first.fail(assign, "BROKEN", "no model", worth_retry=worth_retry)
    await first.expect_received(assign)
    other = next(node for node in nodes if node is not first)
    again = await other.take_job()
    if worth_retry:
        await other.result(again, "hello")
        assert (await gateway.delivered(job)).node_id == other.node_id
    else:
        await other.fail(again, "BROKEN", "no model", worth_retry=False)
        failed = await gateway.failed(job)
        assert reason(failed) == "JOB_FAILED"
        assert failed.message.endswith("BROKEN")
        assert (await at[1].ended(job)).attempts[0].detail == "BROKEN: no model"


@pytest.mark.parametrize("acknowledged", [True, False])
async def test_a_cancel_reaches_a_node_behind_another_dispatcher_and_its_slot_is_free(
    at: list[Scene], acknowledged: bool
) -> None:
    node, gateway = await at[0].node(), at[1].gateway()
    job = await gateway.submit(at[1].spec())
    assign = await node.expect_assign()
    if acknowledged:
        await node.ack(assign)
        await gateway.accepted(job)
    await gateway.cancel(job, "changed my mind")
    assert "changed my mind" in await node.expect_cancel(assign)
    assert reason(await gateway.failed(job)) == "JOB_CANCELLED"
    await at[0].until(node, lambda known: known is not None and known.reserved + known.running == 0)
    following = await gateway.submit(at[1].spec(1))
    await node.result(await node.take_job())
    await gateway.delivered(following)


async def test_audio_that_is_held_behind_one_dispatcher_binds_jobs_that_come_to_another(
    at: list[Scene],
) -> None:
    nodes = [await at[0].node("a", slots=4), await at[1].node("b", slots=4)]
    gateway = at[1].gateway()
    # The first job comes to one, and all that follow to another, which has a free node of its own.
    job = await at[0].gateway().submit(at[0].spec(0, reason=TIMEOUT))
    holder, assign = await whoever_gets_it(nodes)
    await holder.ack(assign)
    await holder.held(assign)
    await at[0].until(holder, lambda known: known is not None and known.running == 0)
    for index in (1, 2, 3):
        job = await gateway.submit(at[1].spec(index, reason=TIMEOUT))
        bound, assign = await whoever_gets_it(nodes)
        assert bound is holder
        await bound.ack(assign)
        await bound.held(assign)
        delivered = await gateway.delivered(job)
        assert delivered.result.kind == dispatcher_pb2.JobResult.KIND_HELD


@in_one_cell
async def test_among_equals_a_node_of_the_dispatcher_that_asks_is_preferred(
    at: list[Scene],
) -> None:
    nodes = [await scene_.node(f"n{index}", slots=4) for index, scene_ in enumerate(at)]
    for home, scene_ in enumerate(at):
        gateway = scene_.gateway()
        for index in range(4):
            job = await gateway.submit(scene_.spec(10 * home + index, session_id=f"s{home}{index}"))
            node, assign = await whoever_gets_it(nodes)
            assert node is nodes[home]
            await node.ack(assign)
            await node.result(assign)
            await gateway.delivered(job)
            # Equal again: its lease is gone.
            await scene_.until(node, lambda known: known is not None and known.running == 0)


@in_one_cell
async def test_a_busier_node_of_its_own_is_no_reason_to_leave_a_free_one_elsewhere_idle(
    at: list[Scene],
) -> None:
    mine, other = await at[0].node("mine", slots=2), await at[1].node("other", slots=2)
    gateway = at[0].gateway()
    await gateway.submit(at[0].spec(0))
    await mine.take_job()
    await gateway.submit(at[0].spec(1))
    await other.take_job()


async def test_a_job_that_waits_is_woken_by_a_slot_that_is_freed_behind_another_dispatcher(
    at: list[Scene],
) -> None:
    node = await at[0].node()
    near, far = at[0].gateway(), at[1].gateway()
    first = await near.submit(at[0].spec(0))
    assign = await node.take_job()
    waits = await at[1].dispatcher.metric("lingua_dispatcher_waits_total")
    second = await far.submit(at[1].spec(1))
    deadline = time.monotonic() + SOON_S
    while await at[1].dispatcher.metric("lingua_dispatcher_waits_total") == waits:
        assert time.monotonic() < deadline, "the job does not wait"
        await asyncio.sleep(0.02)

    await node.result(assign)
    await near.delivered(first)
    await node.result(await node.take_job(), "second")
    assert (await far.delivered(second)).result.texts.translated == "second"


@pytest.mark.parametrize("home", [0, 1, 2])
async def test_a_node_that_reconnects_to_another_dispatcher_keeps_its_job(
    at: list[Scene], home: int
) -> None:
    """The node moves from 0 to 1; the home is the one, the other, or neither."""
    node, gateway = await at[0].node(), at[home].gateway()
    job = await gateway.submit(at[home].spec())
    assign = await node.take_job()
    await gateway.accepted(job)
    await node.cut()

    moved = await at[1].node(running=[assign.attempt])
    again = await moved.take_job()
    assert again.attempt == assign.attempt
    await moved.result(again, "still mine")
    delivered = await gateway.delivered(job)
    assert (delivered.result.texts.translated, delivered.node_id) == ("still mine", moved.node_id)
    await moved.expect_received(again)
    assert await gateway.settled() == []
    assert await moved.settled() == []
    assert (await at[home].job(job)).job.state == common_pb2.JOB_STATE_DONE


@pytest.mark.parametrize("home", [0, 1, 2])
async def test_a_result_that_a_node_takes_along_to_another_dispatcher_is_delivered_once(
    at: list[Scene], home: int
) -> None:
    node, gateway = await at[0].node(), at[home].gateway()
    job = await gateway.submit(at[home].spec())
    assign = await node.take_job()
    await gateway.accepted(job)
    await node.cut()

    moved = await at[1].node(unconfirmed=[assign.attempt])
    await moved.result(assign, "done meanwhile")
    await say_again_when_asked(moved, assign, "done meanwhile", known_here=home == 1)
    delivered = await gateway.delivered(job)
    assert delivered.result.texts.translated == "done meanwhile"
    await moved.expect_received(assign)
    assert await gateway.settled() == []


async def say_again_when_asked(
    node: RawNode, assign: dispatcher_pb2.JobAssign, text: str, *, known_here: bool
) -> None:
    """A home elsewhere asks by sending the assignment again; one that is here already has it."""
    if not known_here:
        again = await node.expect_assign()
        assert again.attempt == assign.attempt
        await node.ack(again)
        await node.result(again, text)


@pytest.mark.parametrize("moves_to", [0, 1])
async def test_a_result_is_confirmed_where_the_node_is_when_it_is_taken(
    at: list[Scene], moves_to: int
) -> None:
    """The node has moved between the delivery and the confirmation: to the home, or away."""
    node, gateway = await at[0].node(), at[1].gateway()
    job = await gateway.submit(at[1].spec())
    assign = await node.take_job()
    await gateway.accepted(job)
    await node.result(assign, "hello")
    await gateway.delivered(job, take=False)
    await node.cut()
    moved = await at[moves_to].node(unconfirmed=[assign.attempt])
    await moved.result(assign, "hello")
    await moved.settled()
    await gateway.taken(job)
    await moved.expect_received(assign)
    assert await gateway.settled() == []


async def test_a_gateway_that_moves_to_another_dispatcher_takes_its_running_job_along(
    at: list[Scene],
) -> None:
    node, gateway = await at[0].node(), at[1].gateway()
    job = await gateway.submit(at[1].spec())
    assign = await node.take_job()
    await gateway.accepted(job)
    await gateway.cut()

    following = at[2].gateway()
    assert await following.submit(at[2].spec()) == job
    again = await node.take_job()
    assert again.attempt == assign.attempt
    assert (await following.accepted(job)).node_id == node.node_id
    await node.result(again, "hello")
    assert (await following.delivered(job)).result.texts.translated == "hello"
    await node.expect_received(again)


async def test_a_heartbeat_from_before_the_result_does_not_cost_the_node_its_result(
    at: list[Scene],
) -> None:
    """The batch of heartbeats goes out when the job is over, and still says that it runs."""
    node, gateway = await at[0].node(beats=False), at[1].gateway()
    job = await gateway.submit(at[1].spec())
    assign = await node.take_job()
    for _ in range(2):
        before = await at[0].known_node(node)
        assert before is not None
        await node.heartbeat(running=[assign.attempt])
        await node.result(assign, "hello")
        beaten = before.last_heartbeat_ms
        await at[0].until(
            node, lambda known, seen=beaten: known is not None and known.last_heartbeat_ms > seen
        )
    await gateway.delivered(job, take=False)
    assert "job_cancel" not in await node.settled()
    await gateway.taken(job)
    await node.expect_received(assign)


async def test_audio_that_a_node_holds_stays_bound_to_it_when_it_moves_to_another_dispatcher(
    at: list[Scene],
) -> None:
    """It says so as soon as it is welcome there, before the job's home has asked for the job."""
    node, gateway = await at[0].node("holder", slots=4), at[2].gateway()
    job = await gateway.submit(at[2].spec(0, reason=TIMEOUT))
    assign = await node.take_job()
    await gateway.accepted(job)
    await node.cut()
    moved = await at[1].node("holder", slots=4, running=[assign.attempt])
    held = dispatcher_pb2.AudioHeld(
        attempt=assign.attempt, session_id=assign.job.session_id, pair=assign.job.pair
    )
    await moved.say(dispatcher_pb2.NodeEvent(audio_held=held))
    again = await moved.take_job()
    await moved.result(again, kind=dispatcher_pb2.JobResult.KIND_HELD)
    await gateway.delivered(job)

    others = [await at[2].node(f"other-{index}", slots=4) for index in range(3)]
    await gateway.submit(at[2].spec(1, reason=TIMEOUT))
    bound, _ = await whoever_gets_it([moved, *others])
    assert bound is moved


async def test_gateways_go_to_the_dispatcher_with_the_fewest_of_them(
    at: list[Scene],
) -> None:
    """Whichever they reach first; otherwise most jobs of a dispatcher with many are relayed."""
    busy = [at[number].gateway() for number in (0, 1) for _ in range(4)]
    for gateway in busy:
        await gateway.is_answered()
    watcher = at[2].gateway()
    addresses = ",".join(scene.dispatcher.address for scene in at)
    settings = load_settings({"LINGUA_DISPATCHER_ADDRESS": addresses})
    links = [DispatcherLink(settings=settings, dialer=Dialer(settings)) for _ in range(3)]
    try:
        for link in links:
            await link.open()
        asked, counts = (busy[0], busy[-1], watcher), [0, 0, 0]
        async with asyncio.timeout(3 * SOON_S):
            while counts != [4, 4, 4]:
                await asyncio.sleep(0.1)
                for gateway in asked:
                    await gateway.is_answered()
                counts = [gateway.gateways for gateway in asked]
    finally:
        for link in links:
            await link.close()
