"""Gateways that misbehave or disappear, at one real dispatcher; their results are kept."""

import grpc
import pytest

from lingua_scheduler.v1 import dispatcher_pb2
from tests.support.cells import in_one_cell
from tests.support.raw_gateway import id_of
from tests.support.rpc_errors import reason
from tests.support.scene import Scene, scene
from tests.support.services import PoolProcess, running_dispatcher


async def test_a_bad_job_fails_with_the_names_of_its_fields_and_the_others_go_on(
    patient: Scene,
) -> None:
    node, gateway = await patient.node(), patient.gateway()
    bad = patient.spec(3, session_id="no id", audio=b"", strict=True)
    bad.audio_format.sample_rate_hz = 1
    job = id_of(bad)
    good = await gateway.submit(bad, patient.spec())

    error = await gateway.failed(job)
    assert reason(error) == "INVALID_MESSAGE"
    fields = {each.field for each in error.field_violations}
    assert fields == {"session_id", "audio", "audio_format.sample_rate_hz", "strict"}
    assert (await node.take_job()).attempt.job_id == good


async def test_an_empty_submission_does_no_harm(patient: Scene) -> None:
    node, gateway = await patient.node(), patient.gateway()
    await gateway.cancel("nobody")
    await gateway.taken("nobody")
    job = await gateway.submit(patient.spec())
    await node.take_job()
    await gateway.accepted(job)


async def test_a_result_that_finds_no_gateway_is_kept_for_the_one_that_attaches(
    patient: Scene,
) -> None:
    node, gateway = await patient.node(), patient.gateway()
    job = await gateway.submit(patient.spec())
    assign = await node.take_job()
    await gateway.accepted(job)
    await gateway.cut()

    await node.settled()
    await node.result(assign, "kept")
    # It is safe, though no gateway has it.
    await node.expect_received(assign)

    following = patient.gateway()
    await following.attach(job)
    assert (await following.delivered(job)).result.texts.translated == "kept"


async def test_a_result_that_its_gateway_had_no_time_to_take_is_kept(patient: Scene) -> None:
    node, gateway = await patient.node(), patient.gateway()
    job = await gateway.submit(patient.spec())
    assign = await node.take_job()
    await node.result(assign, "kept")
    await gateway.delivered(job, take=False)
    await gateway.cut()

    await node.expect_received(assign)
    following = patient.gateway()
    await following.submit(patient.spec())
    assert (await following.delivered(job)).result.texts.translated == "kept"
    assert await node.settled() == []


@pytest.mark.parametrize("attach", [True, False])
async def test_a_kept_result_outlives_its_dispatcher(
    pool_process: PoolProcess, redis_url: str, attach: bool
) -> None:
    async with (
        running_dispatcher(pool_process, redis_url) as process,
        scene(process, pool_process) as made,
    ):
        node, gateway = await made.node(), made.gateway()
        job = await gateway.submit(made.spec())
        assign = await node.take_job()
        await node.result(assign, "kept")
        await gateway.delivered(job, take=False)
        await gateway.cut()
        await node.expect_received(assign)

        process.kill()
        await process.restart()
        following = made.gateway()
        if attach:
            await following.attach(job)
        else:
            await following.submit(made.spec())
        assert (await following.delivered(job)).result.texts.translated == "kept"


@in_one_cell
async def test_a_gateway_that_does_not_read_loses_its_stream_and_nothing_else(
    narrow: Scene,
) -> None:
    node, gateway = await narrow.node(slots=100), narrow.gateway()
    await gateway.settled()
    gateway.stop_reading()
    before = narrow.dispatcher.memory_bytes()
    jobs = []
    for index in range(20):
        jobs.append(await gateway.submit(narrow.spec(index)))
        await node.result(await node.take_job(), speech=bytes(1_000_000))
    for _ in jobs:
        # All of them are safe: taken in by nobody, but kept.
        await node.expect("result_received")

    dropped = await narrow.dispatcher.metric("lingua_dispatcher_backpressure_total", peer="gateway")
    assert dropped >= 1
    assert narrow.dispatcher.memory_bytes() - before < 100_000_000
    gateway.read_on()
    await gateway.ended()
    following = narrow.gateway()
    for job in jobs:
        await following.attach(job)
        assert len((await following.delivered(job)).result.speech) == 1_000_000


async def test_a_node_that_does_not_read_gets_no_more_jobs_and_others_do_them(
    narrow: Scene,
) -> None:
    stuck, gateway = await narrow.node("a", slots=100, reads=False), narrow.gateway()
    audio = bytes(500_000)
    specs = [narrow.spec(index, audio=audio) for index in range(20)]
    for spec in specs:
        await gateway.submit(spec)
    await narrow.dispatcher.reaches(1, "lingua_dispatcher_backpressure_total", peer="node")

    second = await narrow.node("b", slots=100)
    given = {(await second.take_job()).attempt.job_id for _ in specs}

    assert given == {id_of(spec) for spec in specs}
    stuck.read_on()
    await stuck.ended()


async def test_the_stream_of_a_gateway_can_break_at_any_time(patient: Scene) -> None:
    node = await patient.node(slots=50)
    for index in range(10):
        gateway = patient.gateway()
        await gateway.submit(patient.spec(index))
        await gateway.cut()
    gateway = patient.gateway()
    job = await gateway.submit(patient.spec(99))
    while (await node.take_job()).attempt.job_id != job:
        pass
    await gateway.accepted(job)
    with pytest.raises(grpc.aio.AioRpcError):
        await patient.stub.GetJob(dispatcher_pb2.GetJobRequest(job_id=""))
