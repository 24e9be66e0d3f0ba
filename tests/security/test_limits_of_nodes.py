"""A node that breaks the contract's limits: it harms its own attempts and its own stream only."""

import asyncio
import contextlib
import itertools
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, pool_pb2
from lingua_scheduler.v1.dispatcher_pb2 import JobResult, NodeEvent, Texts
from tests.support.audio import speech
from tests.support.raw_client import new_session, raw_client, working
from tests.support.rpc_errors import reason
from tests.support.scene import Scene, scene, together
from tests.support.services import (
    DispatcherProcess,
    GatewayProcess,
    PoolProcess,
    running_dispatcher,
)

# What an honest peer waits at most while a hostile one is at work; without limits it was 50 s.
BESIDE_S = 10.0
MIB = 1024 * 1024


@pytest.fixture(scope="module")
def pool(redis_url: str) -> Iterator[PoolProcess]:
    prefix = f"test:{uuid.uuid4().hex[:8]}"
    with PoolProcess(redis_url=redis_url, prefix=prefix, redis_timeout_ms=4000) as process:
        yield process


@pytest.fixture(scope="module")
def dispatchers(pool: PoolProcess, redis_url: str) -> Iterator[list[DispatcherProcess]]:
    """Two of them, which relay."""
    patient: dict[str, Any] = {"ack_timeout_ms": 60_000, "reservation_ttl_ms": 90_000}
    with (
        DispatcherProcess(pool=pool, redis_url=redis_url, **patient) as first,
        DispatcherProcess(pool=pool, redis_url=redis_url, **patient) as second,
    ):
        yield [first, second]


@pytest.fixture
async def at(dispatchers: list[DispatcherProcess], pool: PoolProcess) -> AsyncIterator[list[Scene]]:
    async with together(dispatchers, pool) as scenes:
        yield scenes


def _result(**fields: Any) -> Callable[[common_pb2.AttemptRef], NodeEvent]:
    return lambda attempt: NodeEvent(job_result=JobResult(attempt=attempt, **fields))


REPORTS: dict[str, tuple[str, Callable[[common_pb2.AttemptRef], NodeEvent]]] = {
    "text": ("job_result.texts.translated", _result(texts=Texts(translated="x" * 65_537))),
    "text of few characters": (
        "job_result.texts.source",
        _result(texts=Texts(source="字" * 30_000)),
    ),
    "speech": ("job_result.speech", _result(speech=bytes(3 * MIB + 1))),
    "nearly all that a message can hold": ("job_result.speech", _result(speech=bytes(4_194_000))),
    "timings": ("job_result.timings", _result(timings=[dispatcher_pb2.StageTiming()] * 33)),
    "joined": ("job_result.joined_utterances", _result(joined_utterances=range(1001))),
    "kind": ("job_result.kind", _result(kind=9)),
    # The speaker ended the sentence, so nothing goes on.
    "holding a whole sentence": ("job_result.kind", _result(kind=JobResult.KIND_HELD)),
    "holding its end": ("job_result.held_audio_bytes", _result(held_audio_bytes=2)),
    "format": (
        "job_result.speech_format.channels",
        _result(speech_format=common_pb2.AudioFormat(encoding=1, sample_rate_hz=16000, channels=7)),
    ),  # type: ignore[arg-type]
    "partial": (
        "job_partial.texts.source",
        lambda attempt: NodeEvent(
            job_partial=dispatcher_pb2.JobPartial(
                attempt=attempt, texts=Texts(source="x" * 4_100_000)
            )
        ),
    ),
    "cause": (
        "job_failed.cause",
        lambda attempt: NodeEvent(
            job_failed=dispatcher_pb2.JobFailed(attempt=attempt, cause="X" * 4_100_000)
        ),
    ),
    "cause of no name": (
        "job_failed.cause",
        lambda attempt: NodeEvent(
            job_failed=dispatcher_pb2.JobFailed(attempt=attempt, cause="a\nb")
        ),
    ),
    "detail": (
        "job_reject.detail",
        lambda attempt: NodeEvent(
            job_reject=dispatcher_pb2.JobReject(attempt=attempt, detail="x" * 4_100_000)
        ),
    ),
    "held": (
        "audio_held.session_id",
        lambda attempt: NodeEvent(
            audio_held=dispatcher_pb2.AudioHeld(attempt=attempt, session_id="x" * 4_100_000)
        ),
    ),
}


@pytest.mark.parametrize("relayed", [False, True], ids=["straight", "relayed"])
@pytest.mark.parametrize("name", REPORTS)
async def test_a_report_over_a_limit_fails_its_own_attempt_and_no_stream(
    at: list[Scene], name: str, relayed: bool
) -> None:
    field, report = REPORTS[name]
    home, owner = at[0], at[int(relayed)]
    hostile, gateway = await owner.node("a"), home.gateway()
    job = await gateway.submit(home.spec(1))
    assign = await hostile.take_job()
    honest = await owner.node("b", slots=2)
    beside = await gateway.submit(home.spec(2, session_id=f"{home.src}-beside"))
    other = await honest.take_job()
    await gateway.accepted(beside)

    await hostile.say(report(assign.attempt))

    retrying = await gateway.retrying(job)
    assert "INVALID_MESSAGE" in retrying.why.message
    assert len(retrying.why.message) < 500
    assert field in await hostile.expect_cancel(assign)
    # The same node again, on the same stream, and the other job on the same relay.
    again = await honest.take_job()
    assert again.attempt.job_id == job
    await honest.result(other, "beside")
    await honest.result(again, "again")
    for which, text in ((beside, "beside"), (job, "again")):
        assert (await gateway.delivered(which)).result.texts.translated == text
    assert await hostile.settled() == ["result_received"]
    # Operators see why.
    assert field in (await home.ended(job)).attempts[0].detail


async def test_a_report_of_no_attempt_ends_the_stream_and_names_the_field(at: list[Scene]) -> None:
    node = await at[0].node()
    error = await node.refused(NodeEvent(job_ack=dispatcher_pb2.JobAck()))
    assert reason(error) == "INVALID_MESSAGE"
    assert {each.field for each in error.field_violations} == {
        "job_ack.attempt.job_id",
        "job_ack.attempt.attempt",
    }


async def test_a_node_of_too_large_results_keeps_no_gateway_from_its_clients(
    at: list[Scene], pool: PoolProcess, redis_url: str
) -> None:
    home = at[0]
    hostile = await home.node("a")
    address = home.dispatcher.address
    with GatewayProcess(pool=pool, redis_url=redis_url, dispatchers=address) as gateway:
        async with raw_client(gateway.address) as victim, raw_client(gateway.address) as client:
            await victim.open(new_session(home.src, home.tgt))
            await victim.send(speech(1), final=True)
            assign = await hostile.take_job()
            await victim.utterance(0, "accepted")
            # Both directions; the other client speaks where only this node is.
            both = [home.src, home.tgt]
            able = common_pb2.NodeCapabilities(asr_langs=both, semantic_langs=both, tts_langs=both)
            async with working(await home.node("b", slots=8, capabilities=able)):
                # As a node does whose result is not confirmed: it is said again and again.
                for _ in range(3):
                    await hostile.say(_result(speech=bytes(4_190_000))(assign.attempt))
                await client.open(new_session(home.tgt, home.src))
                for index in range(3):
                    await client.send(speech(index), final=True)
                    assert (await client.result(index, within=BESIDE_S)).attempts == 1
                assert (await victim.result(0, within=BESIDE_S)).attempts == 2
        assert "RESOURCE_EXHAUSTED" not in gateway.log()


@contextlib.asynccontextmanager
async def honest_work(at: Scene) -> AsyncIterator[None]:
    """A node and a gateway that serve job after job; each has to be done soon."""
    node, gateway = await at.node("honest"), at.gateway()

    async def serve() -> None:
        for number in itertools.count():
            async with asyncio.timeout(BESIDE_S):
                job = await gateway.submit(at.spec(number, session_id=f"{at.src}-honest"))
                await node.result(await node.take_job())
                await gateway.delivered(job)
            await asyncio.sleep(0.01)

    serving = asyncio.create_task(serve())
    try:
        yield
        assert not serving.done(), serving
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


@pytest.mark.parametrize("field", ["running", "unconfirmed"])
async def test_a_hello_of_400000_attempts_is_refused_and_stops_nobody(
    at: list[Scene], field: str
) -> None:
    many = [common_pb2.AttemptRef(job_id="j", attempt=1)] * 400_000
    async with honest_work(at[0]):
        for _ in range(3):
            peer = at[0].peer(at[0].hello("hostile", **{field: many}))
            error = await peer.refused()
            assert reason(error) == "INVALID_MESSAGE"
            assert [each.field for each in error.field_violations] == [field]
            assert "400000 entries; at most 1000" in error.message


async def test_half_a_million_heartbeats_in_a_message_are_refused_and_stop_nobody(
    at: list[Scene],
) -> None:
    beats = [NodeEvent(heartbeat=dispatcher_pb2.Heartbeat())] * 500_000
    async with honest_work(at[0]):
        for name in ("x", "y", "z"):
            node = await at[0].node(name, beats=False)
            error = await node.refused(*beats)
            assert [each.field for each in error.field_violations] == ["events"]


async def test_as_many_heartbeats_as_are_allowed_are_worked_off_beside_others(
    at: list[Scene],
) -> None:
    running = [common_pb2.AttemptRef(job_id=f"j{n}", attempt=1) for n in range(1000)]
    lots = [NodeEvent(heartbeat=dispatcher_pb2.Heartbeat(running=running))] * 300
    hostile = await at[0].node("hostile", beats=False, slots=1000)
    async with honest_work(at[0]):
        for _ in range(10):
            await hostile.say(*lots)
        assert set(await hostile.settled()) <= {"job_assign", "job_cancel"}


async def test_long_lists_in_heartbeats_keep_no_other_node_from_being_renewed(
    pool: PoolProcess, redis_url: str
) -> None:
    """Together they are larger than a message to the pool service."""
    ids = [common_pb2.AttemptRef(job_id=f"{n:x<128}", attempt=1) for n in range(1000)]
    settings = {"heartbeat_batch_ms": 1000}
    async with (
        running_dispatcher(pool, redis_url, None, **settings) as process,
        scene(process, pool) as here,
    ):
        honest = await here.node("honest", beats=False)
        hostile = [await here.node(f"h{n}", beats=False, slots=1000) for n in range(36)]
        for load in (0.25, 0.5, 0.75):
            for node in hostile:
                await node.heartbeat(running=ids)
            await honest.heartbeat(load=load)

            def is_renewed(known: pool_pb2.Node | None, load: float = load) -> bool:
                return known is not None and known.load == load

            await here.until(honest, is_renewed)
        assert "heartbeats not taken" not in process.log()
