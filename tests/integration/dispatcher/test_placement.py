"""Which node a job goes to, and when, at one real dispatcher."""

import asyncio
import time

from lingua_scheduler.v1 import common_pb2, dispatcher_pb2
from tests.support.raw_node import whoever_gets_it
from tests.support.rpc_errors import reason
from tests.support.scene import Scene

TIMEOUT = common_pb2.FINALIZE_REASON_TIMEOUT
MAX_DURATION = common_pb2.FINALIZE_REASON_MAX_DURATION
HELD = dispatcher_pb2.JobResult.KIND_HELD


async def test_where_all_are_full_jobs_wait_and_the_first_to_come_is_the_first_to_go(
    narrow: Scene,
) -> None:
    node, gateway, other = await narrow.node(slots=2), narrow.gateway(), narrow.gateway()
    # The node is full before others come: of jobs that ask at the same moment any may be first.
    jobs = [await gateway.submit(narrow.spec(index)) for index in range(2)]
    under_way = [await node.take_job(), await node.take_job()]
    jobs.append(await gateway.submit(narrow.spec(2)))
    await narrow.dispatcher.reaches(1, "lingua_dispatcher_waits_total")
    # One waits. Whoever comes now, by whatever gateway, has to go behind it.
    for index in range(3, 10):
        peer = (gateway, other)[index % 2]
        jobs.append(await peer.submit(narrow.spec(index)))
        await peer.settled()
    given = [assign.attempt.job_id for assign in under_way]
    while under_way:
        assert (await node.settled()) == []
        await node.result(under_way.pop(0))
        if len(given) < len(jobs):
            under_way.append(await node.take_job())
            given.append(under_way[-1].attempt.job_id)
    assert set(given[:2]) == set(jobs[:2])
    assert given[2:] == jobs[2:]


async def test_a_node_that_connects_is_room_for_those_that_wait(patient: Scene) -> None:
    first, gateway = await patient.node("a"), patient.gateway()
    await gateway.submit(patient.spec())
    await first.take_job()
    jobs = [await gateway.submit(patient.spec(index)) for index in (1, 2)]
    second = await patient.node("b", slots=2)
    assert {(await second.take_job()).attempt.job_id for _ in jobs} == set(jobs)


async def test_a_job_that_has_waited_long_enough_fails(hasty: Scene) -> None:
    node, gateway = await hasty.node(), hasty.gateway()
    await gateway.submit(hasty.spec())
    await node.expect_assign()
    began = time.monotonic()
    job = await gateway.submit(hasty.spec(1))

    error = await gateway.failed(job)

    assert reason(error) == "ALL_CANDIDATES_FULL_OR_FAILED"
    assert error.retry_after_ms > 0
    assert time.monotonic() - began >= 0.4


async def test_without_a_node_for_the_direction_a_job_fails_at_once(patient: Scene) -> None:
    gateway = patient.gateway()
    job = await gateway.submit(patient.spec())
    assert reason(await gateway.failed(job)) == "NO_CAPABLE_NODE"


async def test_a_preferred_node_is_taken_and_another_one_where_it_is_full(patient: Scene) -> None:
    nodes, gateway = {name: await patient.node(name) for name in "abcd"}, patient.gateway()
    wanted = nodes["c"]
    first = await gateway.submit(patient.spec(preferred_node_id=wanted.node_id))
    assert (await wanted.take_job()).attempt.job_id == first

    second = await gateway.submit(patient.spec(1, preferred_node_id=wanted.node_id))
    got, assign = await whoever_gets_it(list(nodes.values()))
    assert got is not wanted
    assert assign.attempt.job_id == second


async def test_strictly_preferred_means_that_node_or_none(hasty: Scene) -> None:
    wanted, other, gateway = await hasty.node("a"), await hasty.node("b"), hasty.gateway()
    strict = {"preferred_node_id": wanted.node_id, "strict": True}
    await gateway.submit(hasty.spec(0, **strict))
    await wanted.expect_assign()
    job = await gateway.submit(hasty.spec(1, **strict))
    assert reason(await gateway.failed(job)) == "ALL_CANDIDATES_FULL_OR_FAILED"
    assert await other.settled() == []


async def test_who_waits_for_one_node_does_not_hold_up_those_that_others_have_room_for(
    patient: Scene,
) -> None:
    wanted, gateway = await patient.node("a"), patient.gateway()
    job = await gateway.submit(patient.spec())
    assign = await wanted.take_job()
    await gateway.accepted(job)
    strict = {"preferred_node_id": wanted.node_id, "strict": True}
    waits = [await gateway.submit(patient.spec(index, **strict)) for index in (1, 2)]
    await gateway.settled()
    other = await patient.node("b", slots=10)
    for index in range(3, 8):
        free = await gateway.submit(patient.spec(index))
        assert (await other.take_job()).attempt.job_id == free
    assert await wanted.settled() == []

    for job in waits:
        await wanted.result(assign)
        assign = await wanted.take_job()
        assert assign.attempt.job_id == job


async def test_a_preferred_node_that_cannot_do_it_is_an_error(patient: Scene) -> None:
    node, gateway = await patient.node(), patient.gateway()
    spec = patient.spec(preferred_node_id=node.node_id)
    spec.pair.tgt = "fr"
    job = await gateway.submit(spec)
    assert reason(await gateway.failed(job)) == "PREFERRED_NODE_NOT_CAPABLE"


async def test_a_job_ends_at_its_deadline_and_its_node_knows_how_long_it_has(
    patient: Scene,
) -> None:
    node, gateway = await patient.node(), patient.gateway()
    job = await gateway.submit(patient.spec(deadline_ms=600))
    assign = await node.take_job()
    assert 0 < assign.time_left_ms <= 600

    assert reason(await gateway.failed(job)) == "JOB_TIMEOUT"
    await node.expect_cancel(assign)


async def test_audio_that_a_node_holds_binds_the_next_job_of_the_turn_to_it(
    patient: Scene,
) -> None:
    nodes, gateway = [await patient.node(name) for name in "abcde"], patient.gateway()
    for turn in range(3):
        session = f"{patient.src}-{turn}"
        job = await gateway.submit(patient.spec(0, session_id=session, reason=TIMEOUT))
        holder, assign = await whoever_gets_it(nodes)
        await holder.ack(assign)
        await holder.held(assign)
        assert (await gateway.delivered(job)).result.kind == HELD

        job = await gateway.submit(patient.spec(1, session_id=session, reason=TIMEOUT))
        got, assign = await whoever_gets_it(nodes)
        assert got is holder
        await got.result(assign)
        await gateway.delivered(job)


async def test_speech_that_goes_on_stays_on_its_node_until_it_ends(patient: Scene) -> None:
    nodes, gateway = [await patient.node(name) for name in "abcde"], patient.gateway()
    reasons = [MAX_DURATION, common_pb2.FINALIZE_REASON_MAX_LENGTH, MAX_DURATION, TIMEOUT]
    got, begins = [], []
    for index, why in enumerate([*reasons, TIMEOUT]):
        job = await gateway.submit(patient.spec(index, reason=why))
        node, assign = await whoever_gets_it(nodes)
        await node.ack(assign)
        await node.result(assign)
        await gateway.delivered(job)
        got.append(node.node_id)
        begins.append(assign.begins_turn)
    assert len(set(got[:-1])) == 1
    # A node is told of the others that what it may still hold is no part of them.
    assert begins == [True, False, False, False, True]


async def test_a_turn_waits_for_its_node_as_long_as_its_deadline_allows(patient: Scene) -> None:
    first, gateway = await patient.node("a"), patient.gateway()
    job = await gateway.submit(patient.spec(0, reason=MAX_DURATION))
    assign = await first.take_job()
    second = await patient.node("b")
    following = await gateway.submit(patient.spec(1, reason=MAX_DURATION))
    # In time, the bound node has room again.
    await first.result(assign)
    assert not (await gateway.delivered(job)).turn_broken
    assign = await first.take_job()
    assert assign.attempt.job_id == following

    # It stays full: the turn goes on elsewhere while there is still time for that.
    last = await gateway.submit(patient.spec(2, deadline_ms=1500))
    assign = await second.take_job()
    assert assign.attempt.job_id == last
    await second.result(assign)
    assert (await gateway.delivered(last)).turn_broken


async def test_the_rest_of_a_sentence_goes_before_others_that_wait_for_its_node(
    patient: Scene,
) -> None:
    node, gateway = await patient.node("a"), patient.gateway()
    job = await gateway.submit(patient.spec(0, reason=TIMEOUT))
    await node.held(await node.take_job())
    await gateway.delivered(job)
    busy = await gateway.submit(patient.spec(0, session_id="another"))
    assign = await node.take_job()
    others = [patient.spec(at, session_id="more") for at in range(3)]
    await gateway.submit(*others)
    async with asyncio.timeout(10):
        while await patient.dispatcher.metric("lingua_dispatcher_waiting_jobs") < len(others):
            await gateway.is_answered()
    rest = await gateway.submit(patient.spec(1, held_utterances=[0]))
    # It has asked, and one slot is kept for it.
    await gateway.is_answered()
    await node.result(assign)
    await gateway.delivered(busy)
    assert (await node.take_job()).attempt.job_id == rest
