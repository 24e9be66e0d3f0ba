"""Sessions while nodes, dispatchers and clients fail: every utterance is delivered or missing."""

import asyncio
import contextlib
import dataclasses
import functools
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import grpc
import pytest

from lingua_scheduler.v1 import common_pb2, dispatcher_pb2_grpc, session_pb2
from tests.support.audio import speech
from tests.support.raw_client import RawClient, heard, new_session, raw_client, working
from tests.support.rpc_errors import reason
from tests.support.scene import Scene, scene
from tests.support.services import DispatcherProcess, GatewayProcess, PoolProcess, all_running

Eventually = Callable[..., Awaitable[None]]

DEGRADED = common_pb2.NODE_HEALTH_DEGRADED
# Open utterances at which the gateway stops reading.
UTTERANCES_MAX = 4
# Bytes that may wait for a client that does not read.
OUTBOX_BYTES = 1_000_000


@pytest.fixture(scope="module")
def dispatchers(pool_process: PoolProcess, redis_url: str) -> Iterator[list[DispatcherProcess]]:
    """Two dispatchers that do not wait long for a node."""
    processes = [
        DispatcherProcess(
            pool=pool_process,
            redis_url=redis_url,
            instance_id=f"d{at}",
            queue_wait_ms=200,
            node_reconnect_grace_ms=60_000,
            drain_grace_ms=60_000,
        )
        for at in range(2)
    ]
    with all_running(processes):
        yield processes


def made_gateway(
    pool: PoolProcess, redis_url: str, dispatchers: list[DispatcherProcess], **settings: int
) -> GatewayProcess:
    return GatewayProcess(
        pool=pool,
        redis_url=redis_url,
        dispatchers=",".join(each.address for each in dispatchers),
        hangover_manual_ms=0,
        session_utterances_max=UTTERANCES_MAX,
        peer_silence_ms=2000,
        limits={
            "live.converse_stream._MAX_BYTES": OUTBOX_BYTES,
            "dispatcher_link._GREET_S": 1.0,
        },
        **settings,
    )


@pytest.fixture(scope="module")
def gateway(
    pool_process: PoolProcess, redis_url: str, dispatchers: list[DispatcherProcess]
) -> Iterator[GatewayProcess]:
    """A gateway that uses both dispatchers."""
    with made_gateway(pool_process, redis_url, dispatchers) as process:
        yield process
        assert not process.faults(), process.log()


@pytest.fixture(scope="module")
def hasty_gateway(
    pool_process: PoolProcess, redis_url: str, dispatchers: list[DispatcherProcess]
) -> Iterator[GatewayProcess]:
    """A gateway that gives each utterance two seconds."""
    times = {"job_timeout_ms": 2000, "result_deadline_ms": 2000}
    with made_gateway(pool_process, redis_url, dispatchers, **times) as process:
        yield process
        assert not process.faults(), process.log()


@pytest.fixture
async def at(
    dispatchers: list[DispatcherProcess], pool_process: PoolProcess
) -> AsyncIterator[list[Scene]]:
    """A scene at each dispatcher, with the same languages."""
    for each in dispatchers:
        if each.process.poll() is not None:
            await each.restart()
    async with contextlib.AsyncExitStack() as stack:
        first = await stack.enter_async_context(scene(dispatchers[0], pool_process))
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(dispatchers[1].address))
        stub = dispatcher_pb2_grpc.DispatcherStub(channel)
        other = dataclasses.replace(first, dispatcher=dispatchers[1], stub=stub, _open=[])
        stack.push_async_callback(other.close)
        yield [first, other]
    assert not dispatchers[1].faults(), dispatchers[1].log()


@pytest.fixture
async def hasty(hasty_gateway: GatewayProcess) -> AsyncIterator[RawClient]:
    """A client of the hasty gateway."""
    async with raw_client(hasty_gateway.address) as made:
        yield made


# ---- nodes ----


async def test_an_utterance_waits_for_a_node_that_can_do_it(
    client: RawClient, at: list[Scene], gateway: GatewayProcess
) -> None:
    retries = await gateway.metric("lingua_gateway_submit_retries_total")
    await client.open(new_session(at[0].src, at[0].tgt))
    await client.send(speech(1), final=True)
    retrying = (await client.utterance(0, "retrying")).retrying
    assert reason(retrying.why) == "NO_CAPABLE_NODE"
    assert "audio_ack" not in client.told()
    async with working(await at[0].node()):
        assert (await client.result(0)).texts.translated == "1"
    await client.acked(1)
    assert await gateway.metric("lingua_gateway_submit_retries_total") > retries


async def test_what_finds_no_room_in_its_time_is_missing_and_the_next_goes_on(
    hasty: RawClient, at: list[Scene], hasty_gateway: GatewayProcess
) -> None:
    node = await at[0].node(beats=False)
    await node.heartbeat(health=DEGRADED)
    await at[0].until(node, lambda known: known is not None and known.health == DEGRADED)
    missed = await hasty_gateway.metric("lingua_gateway_deadline_misses_total")
    await hasty.open(new_session(at[0].src, at[0].tgt))
    await hasty.send(speech(1), final=True)
    why = await hasty.missing(0)
    assert reason(why) == "DEADLINE_EXCEEDED"
    assert "no node had room" in why.message
    assert reason((await hasty.utterance(0, "retrying")).retrying.why) == (
        "ALL_CANDIDATES_FULL_OR_FAILED"
    )
    await hasty.acked(1)  # the client will not send it again
    assert await hasty_gateway.metric("lingua_gateway_deadline_misses_total") == missed + 1
    await node.heartbeat()
    async with working(node):
        await hasty.send(speech(2), final=True)
        await hasty.result(1)
    assert hasty.outcomes() == [(0, ""), (1, "2")]
    await hasty.say(results_seen=2, close=session_pb2.Close())
    closed = (await hasty.event("closed")).closed
    assert (closed.results, closed.missing) == (1, 1)


async def test_a_node_that_never_answers_costs_one_utterance_its_time(
    hasty: RawClient, at: list[Scene]
) -> None:
    node = await at[0].node(slots=2)
    await hasty.open(new_session(at[0].src, at[0].tgt))
    await hasty.send(speech(1), final=True)
    lost = await node.take_job()
    await hasty.utterance(0, "accepted")
    await hasty.send(speech(2), final=True)
    await node.result(await node.take_job(), "2")
    await hasty.result(1)
    assert hasty.outcomes() == [(0, ""), (1, "2")]
    assert await node.expect_cancel(lost)
    # Too late: the client is not told.
    await node.result(lost, "1")
    await hasty.send(speech(3), final=True)
    await node.result(await node.take_job(), "3")
    await hasty.result(2)
    assert hasty.outcomes() == [(0, ""), (1, "2"), (2, "3")]


async def test_a_job_that_fails_for_good_is_missing_at_once(
    client: RawClient, at: list[Scene]
) -> None:
    node = await at[0].node(slots=2)
    await client.open(new_session(at[0].src, at[0].tgt))
    await client.send(speech(1), final=True)
    assign = await node.take_job()
    await client.send(speech(2), final=True)
    await node.result(await node.take_job(), "2")
    await node.fail(assign, "BROKEN", "no voice in it", worth_retry=False)
    why = await client.missing(0)
    assert reason(why) == "JOB_FAILED"
    assert why.message.endswith("BROKEN")  # the details of the node are for operators only
    await client.result(1)
    assert client.outcomes() == [(0, ""), (1, "2")]


async def test_an_attempt_that_fails_is_told_and_the_next_one_counts(
    client: RawClient, at: list[Scene]
) -> None:
    node = await at[0].node("a")
    await client.open(new_session(at[0].src, at[0].tgt))
    await client.send(speech(1), final=True)
    assign = await node.take_job()
    other = await at[1].node("b")
    await node.fail(assign, "BROKEN", "out of memory", worth_retry=True)
    retrying = (await client.utterance(0, "retrying")).retrying
    assert retrying.why.message.endswith("BROKEN")
    again = await other.take_job()
    assert again.job.audio == assign.job.audio
    await other.result(again, "1")
    result = await client.result(0)
    assert (result.node_id, result.attempts) == (other.node_id, 2)


# ---- dispatchers ----


async def home_and_other(client: RawClient, at: list[Scene]) -> tuple[Scene, Scene]:
    """The scene that gets the gateway's jobs now, and the other one; tried with an utterance."""
    index = len(client.outcomes())
    async with working(await at[0].node("probe")):
        await client.send(speech(99), final=True)
        job_id = (await client.result(index)).job_id
    homes = [(await at[0].job(job_id)).job.home_instance == f"d{number}" for number in (0, 1)]
    assert sum(homes) == 1
    await at[0]._open.pop().cut()
    return (at[0], at[1]) if homes[0] else (at[1], at[0])


async def test_jobs_of_a_dispatcher_that_is_killed_are_submitted_to_another_one(
    client: RawClient, at: list[Scene]
) -> None:
    await client.open(new_session(at[0].src, at[0].tgt))
    home, other = await home_and_other(client, at)
    node = await other.node(slots=2)
    for mark in (1, 2):
        await client.send(speech(mark), final=True)
    assigns = [await node.take_job() for _ in range(2)]
    await client.acked(3)
    home.dispatcher.kill()
    for _ in range(2):
        again = await node.take_job()
        (known,) = [each for each in assigns if each.attempt == again.attempt]
        assert known.job.audio == again.job.audio
        await node.result(again, heard(again.job))
    await client.result(2)
    assert client.outcomes() == [(0, "99"), (1, "1"), (2, "2")]
    await client.send(speech(3), final=True)
    assign = await node.take_job()
    await node.result(assign, "3")
    await client.result(3)


async def test_a_dispatcher_that_drains_ends_what_it_has_and_gets_nothing_new(
    client: RawClient, at: list[Scene]
) -> None:
    await client.open(new_session(at[0].src, at[0].tgt))
    home, other = await home_and_other(client, at)
    node = await other.node(slots=2)
    await client.send(speech(1), final=True)
    before = await node.take_job()
    await client.acked(2)
    home.dispatcher.terminate()
    await home.drains()
    await client.send(speech(2), final=True)
    after = await node.take_job()
    await node.result(after, "2")
    await node.result(before, "1")
    await client.result(2)
    assert client.outcomes() == [(0, "99"), (1, "1"), (2, "2")]
    await client.say(results_seen=3)
    assert await home.dispatcher.exit_code() == 0
    assert "job_assign" not in await node.settled()


async def test_jobs_of_a_dispatcher_that_falls_silent_go_to_another_one(
    client: RawClient, at: list[Scene]
) -> None:
    await client.open(new_session(at[0].src, at[0].tgt))
    home, other = await home_and_other(client, at)
    node = await other.node(slots=2)
    await client.send(speech(1), final=True)
    before = await node.take_job()
    await client.acked(2)
    home.dispatcher.process.send_signal(signal.SIGSTOP)
    try:
        again = await node.take_job()
        assert (again.attempt, again.job.audio) == (before.attempt, before.job.audio)
        await node.result(again, "1")
        await client.result(1)
        await client.send(speech(2), final=True)
        await node.result(await node.take_job(), "2")
        await client.result(2)
    finally:
        home.dispatcher.process.send_signal(signal.SIGCONT)
    assert client.outcomes() == [(0, "99"), (1, "1"), (2, "2")]


async def test_while_there_is_no_dispatcher_utterances_wait(
    client: RawClient, at: list[Scene], gateway: GatewayProcess
) -> None:
    await client.open(new_session(at[0].src, at[0].tgt))
    for each in at:
        each.dispatcher.kill()
    await client.send(speech(1), final=True)
    await client.utterance(0, "finalized")
    await client.send(speech(2), final=True)
    await client.utterance(1, "finalized")
    assert await gateway.metric("lingua_gateway_jobs") == 2
    await asyncio.gather(*(each.dispatcher.restart() for each in at))
    async with working(await at[0].node()):
        await client.result(1)
    assert client.outcomes() == [(0, "1"), (1, "2")]
    assert await gateway.metric("lingua_gateway_dispatcher_up") == 1


# ---- clients ----


def is_over(client: RawClient, count: int) -> bool:
    """Whether the stream has ended, or the last of this many results has arrived."""
    return client.ended or client.outcomes()[-1][0] == count - 1


async def test_a_client_that_does_not_read_is_cut_off_and_gets_everything_when_it_resumes(
    client: RawClient, at: list[Scene], gateway: GatewayProcess, eventually: Eventually
) -> None:
    name, how = "lingua_gateway_sessions_ended_total", "backpressure"
    cut, count = await gateway.metric(name, how=how), 30
    node = await at[0].node(slots=2)
    opened = await client.open(new_session(at[0].src, at[0].tgt))
    client.stop_reading()
    async with raw_client(gateway.address) as other:
        await other.open(new_session(at[0].src, at[0].tgt))
        async with working(node, bytes(OUTBOX_BYTES // 3)) as jobs:
            for mark in range(count):
                await client.send(speech(mark), final=True)
            await gateway.reaches(cut + 1, name, how=how)
            await other.send(speech(500), final=True)
            assert (await other.result(0)).texts.translated == "500"
            client.read_on()
            # Messages that wait before it are not written, and neither are events about it.
            assert reason(await client.failure()) == "BACKPRESSURE"
            assert (await client.status()) is grpc.StatusCode.RESOURCE_EXHAUSTED
            got = client.outcomes()
            acked = max((each.next_seq for each in client.of("audio_ack")), default=0)
            while len(got) < count:
                # All at once may be too much again, but some arrives each time.
                async with raw_client(gateway.address) as again:
                    await again.resume(opened, results_seen=len(got), next_seq=acked)
                    with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                        while again.seq < count:
                            await again.send(speech(again.seq), final=True)
                    await again.result(len(got))
                    await eventually(functools.partial(is_over, again, count))
                    got += again.outcomes()
        assert got == [(mark, str(mark)) for mark in range(count)]
        assert len(jobs) == count + 1


async def test_a_client_that_is_far_ahead_is_not_read_and_loses_nothing(
    client: RawClient, at: list[Scene], gateway: GatewayProcess
) -> None:
    node = await at[0].node(slots=3 * UTTERANCES_MAX)
    chunks = await gateway.metric("lingua_gateway_chunks_total")
    await client.open(new_session(at[0].src, at[0].tgt))
    count = 3 * UTTERANCES_MAX
    for mark in range(count):
        await client.send(speech(mark), final=True)
    await client.say(close=session_pb2.Close())
    assigns = [await node.take_job() for _ in range(UTTERANCES_MAX)]
    await client.acked(UTTERANCES_MAX)
    assert await node.settled() == []
    assert await gateway.metric("lingua_gateway_chunks_total") == chunks + UTTERANCES_MAX
    for assign in assigns:
        await node.result(assign, heard(assign.job))
    async with working(node) as jobs:
        closed = (await client.event("closed")).closed
        assert (closed.results, closed.missing) == (count, 0)
    assert client.outcomes() == [(mark, str(mark)) for mark in range(count)]
    assert len(jobs) == count - UTTERANCES_MAX


async def test_chunks_of_one_message_are_not_taken_beyond_what_may_be_under_way(
    client: RawClient, at: list[Scene], gateway: GatewayProcess
) -> None:
    node = await at[0].node(slots=3 * UTTERANCES_MAX)
    taken = await gateway.metric("lingua_gateway_chunks_total")
    await client.open(new_session(at[0].src, at[0].tgt))
    count = 3 * UTTERANCES_MAX
    chunks = [
        session_pb2.AudioChunk(seq=mark, data=speech(mark), is_final=True) for mark in range(count)
    ]
    await client.say(audio_chunks=session_pb2.AudioChunks(chunks=chunks))
    await client.say(close=session_pb2.Close())
    assigns = [await node.take_job() for _ in range(UTTERANCES_MAX)]
    await client.acked(UTTERANCES_MAX)
    assert await node.settled() == []
    assert await gateway.metric("lingua_gateway_chunks_total") == taken + UTTERANCES_MAX
    for assign in assigns:
        await node.result(assign, heard(assign.job))
    async with working(node):
        closed = (await client.event("closed")).closed
    assert (closed.results, closed.missing) == (count, 0)
    assert client.outcomes() == [(mark, str(mark)) for mark in range(count)]


async def test_a_client_that_is_not_read_may_leave_and_resume(
    client: RawClient, at: list[Scene], gateway: GatewayProcess
) -> None:
    node = await at[0].node(slots=20)
    opened = await client.open(new_session(at[0].src, at[0].tgt))
    for mark in range(UTTERANCES_MAX + 2):
        await client.send(speech(mark), final=True)
    assigns = [await node.take_job() for _ in range(UTTERANCES_MAX)]
    await client.acked(UTTERANCES_MAX)
    await client.close()
    async with raw_client(gateway.address) as again:
        await again.resume(opened, next_seq=UTTERANCES_MAX)
        for mark in range(UTTERANCES_MAX, UTTERANCES_MAX + 2):
            await again.send(speech(mark), final=True)
        for assign in assigns:
            await node.result(assign, heard(assign.job))
        async with working(node):
            await again.result(UTTERANCES_MAX + 1)
        count = UTTERANCES_MAX + 2
        assert again.outcomes() == [(mark, str(mark)) for mark in range(count)]
