"""Sessions while Redis is unavailable, frozen, or has lost all data."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator

import grpc
import pytest
import redis

from lingua_scheduler.services.runtime.redis.embedded.server import EmbeddedRedis
from lingua_scheduler.v1 import session_pb2, session_pb2_grpc
from tests.support.audio import speech
from tests.support.cells import prefix_of
from tests.support.raw_client import RawClient, new_session, raw_client, working
from tests.support.rpc_errors import failure, reason
from tests.support.scene import Scene, scene
from tests.support.services import DispatcherProcess, GatewayProcess, PoolProcess, all_running

DOWN = "SCHEDULER_DEPENDENCY_DOWN"
# A call fails within half of this time; the rest allows for a busy machine.
FAST_S = 2.0


@pytest.fixture(scope="module")
def gateways(
    frail_redis: EmbeddedRedis, frail_pool: PoolProcess, frail_dispatcher: DispatcherProcess
) -> Iterator[tuple[GatewayProcess, GatewayProcess]]:
    """Two gateways on the frail Redis."""
    made = [
        GatewayProcess(
            pool=frail_pool,
            redis_url=frail_redis.url,
            dispatchers=frail_dispatcher.address,
            hangover_manual_ms=0,
            redis_timeout_ms=1000,
            limits={"live.sessions._RENEW_WITHIN_S": 0.3},
        )
        for _ in range(2)
    ]
    with all_running(made):
        yield made[0], made[1]
        for each in made:
            assert not each.faults(), each.log()


@pytest.fixture
async def here(
    frail_pool: PoolProcess, frail_dispatcher: DispatcherProcess
) -> AsyncIterator[Scene]:
    """The scene of a test; Redis runs when it starts."""
    async with scene(frail_dispatcher, frail_pool) as made:
        yield made


@pytest.fixture
async def client(gateways: tuple[GatewayProcess, GatewayProcess]) -> AsyncIterator[RawClient]:
    """A client of the first gateway."""
    async with raw_client(gateways[0].address) as made:
        yield made


async def opens(gateway: GatewayProcess, new: session_pb2.NewSession) -> None:
    """Returns when new sessions can be opened again."""
    deadline = time.monotonic() + 10
    while True:
        async with raw_client(gateway.address) as client:
            await client.say(open=session_pb2.Open(new=new))
            with contextlib.suppress(AssertionError):
                await client.event("opened")
                return
        assert time.monotonic() < deadline, "no session opens"
        await asyncio.sleep(0.05)


async def session_of(gateway: GatewayProcess, session_id: str) -> session_pb2.Session:
    async with grpc.aio.insecure_channel(gateway.address) as channel:
        stub = session_pb2_grpc.SessionGatewayStub(channel)
        answer = await stub.GetSession(session_pb2.GetSessionRequest(session_id=session_id))
        assert isinstance(answer, session_pb2.GetSessionResponse)
        return answer.session


async def is_known(gateway: GatewayProcess, session_id: str) -> bool:
    try:
        await session_of(gateway, session_id)
    except grpc.aio.AioRpcError as error:
        if error.code() not in (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.UNAVAILABLE):
            raise
        return False
    return True


@pytest.mark.parametrize("frozen", [True, False])
async def test_without_redis_no_session_opens_or_resumes_and_that_is_said_at_once(
    client: RawClient,
    here: Scene,
    frail_redis: EmbeddedRedis,
    gateways: tuple[GatewayProcess, GatewayProcess],
    frozen: bool,
) -> None:
    opened = await client.open(new_session(here.src, here.tgt))
    resume = session_pb2.ResumeSession(
        session_id=opened.session_id, resume_token=opened.resume_token
    )
    (frail_redis.pause if frozen else frail_redis.kill)()
    try:
        for start in (
            session_pb2.Open(new=new_session(here.src, here.tgt)),
            session_pb2.Open(resume=resume),
        ):
            async with raw_client(gateways[1].address) as other:
                began = time.monotonic()
                await other.say(open=start)
                error = await other.refused(DOWN)
                assert time.monotonic() - began < FAST_S
                assert (await other.status()) is grpc.StatusCode.UNAVAILABLE
                assert error.retry_after_ms > 0
        async with grpc.aio.insecure_channel(gateways[1].address) as channel:
            stub = session_pb2_grpc.SessionGatewayStub(channel)
            for call in (
                stub.GetSession(session_pb2.GetSessionRequest(session_id=opened.session_id)),
                stub.ListSessions(session_pb2.ListSessionsRequest()),
            ):
                assert (await failure(call))[1] == DOWN
    finally:
        (frail_redis.resume if frozen else frail_redis.restart)()
    await opens(gateways[1], new_session(here.src, here.tgt))


@pytest.mark.parametrize("frozen", [True, False])
async def test_a_session_that_runs_keeps_its_audio_and_goes_on_when_redis_is_back(
    client: RawClient, here: Scene, frail_redis: EmbeddedRedis, frozen: bool
) -> None:
    node = await here.node()
    await client.open(new_session(here.src, here.tgt))
    async with working(node) as jobs:
        await client.send(speech(0), final=True)
        await client.result(0)
        await client.send(speech(1))
        (frail_redis.pause if frozen else frail_redis.kill)()
        try:
            await client.send(speech(2), final=True)
            await client.error(DOWN)
            await client.send(speech(3), final=True)
            await client.send(speech(4))
            assert client.of("audio_ack")[-1].next_seq == 1
        finally:
            (frail_redis.resume if frozen else frail_redis.restart)()
        await client.send(speech(5), final=True)
        await client.result(3)
    assert client.outcomes() == [(0, "0"), (1, "1 2"), (2, "3"), (3, "4 5")]
    assert len(client.of("error")) == 1  # once per outage
    assert len(jobs) == 4
    await client.acked(6)
    await client.say(results_seen=4, close=session_pb2.Close())
    closed = (await client.event("closed")).closed
    assert (closed.results, closed.missing) == (4, 0)
    assert (await client.status()) is grpc.StatusCode.OK


@pytest.mark.parametrize("killed", [False, True])
async def test_a_session_that_redis_has_lost_is_written_down_again_and_can_be_resumed(
    client: RawClient,
    here: Scene,
    frail_redis: EmbeddedRedis,
    gateways: tuple[GatewayProcess, GatewayProcess],
    killed: bool,
) -> None:
    first, second = gateways
    node = await here.node(slots=3)
    opened = await client.open(new_session(here.src, here.tgt))
    for mark in range(3):
        await client.send(speech(mark), final=True)
        assign = await node.take_job()
        if mark < 2:
            await node.result(assign, str(mark))
            await client.result(mark)
    await client.acked(3)
    await client.say(results_seen=1)
    await client.send(speech(3))
    frail_redis.kill()
    frail_redis.restart()
    deadline = time.monotonic() + 10
    while not await is_known(first, opened.session_id):
        assert time.monotonic() < deadline, "it is not written down again"
        await asyncio.sleep(0.02)
    if killed:
        first.kill()
        await client.status()
        await first.restart()
    else:
        await client.close()
    async with raw_client(second.address) as again:
        await again.resume(opened, results_seen=1, next_seq=3)
        await node.result(assign, "2")
        async with working(node):
            await again.send(speech(3))
            await again.send(speech(4), final=True)
            await again.result(3)
        assert again.outcomes() == [(1, "1"), (2, "2"), (3, "3 4")]
        await again.say(results_seen=4, close=session_pb2.Close())
        closed = (await again.event("closed")).closed
        assert (closed.results, closed.missing) == (4, 0)


async def test_a_client_that_leaves_while_redis_has_lost_its_session_can_resume(
    here: Scene, frail_redis: EmbeddedRedis, gateways: tuple[GatewayProcess, GatewayProcess]
) -> None:
    async with raw_client(gateways[0].address) as client:
        opened = await client.open(new_session(here.src, here.tgt))
        forget(frail_redis, here.dispatcher.prefix, opened.session_id)
    deadline = time.monotonic() + 10
    while not await is_known(gateways[1], opened.session_id):
        assert time.monotonic() < deadline, "it is not written down again"
        await asyncio.sleep(0.02)
    async with raw_client(gateways[1].address) as again:
        await again.resume(opened)
    session = await session_of(gateways[1], opened.session_id)
    assert session.epoch == 2


async def test_a_session_that_redis_has_lost_still_makes_jobs(
    client: RawClient,
    here: Scene,
    frail_redis: EmbeddedRedis,
    gateways: tuple[GatewayProcess, GatewayProcess],
) -> None:
    opened = await client.open(new_session(here.src, here.tgt))
    async with working(await here.node()):
        await client.send(speech(0), final=True)
        await client.result(0)
        forget(frail_redis, here.dispatcher.prefix, opened.session_id)
        await client.send(speech(1), final=True)
        await client.result(1)
    session = await session_of(gateways[0], opened.session_id)
    assert session.next_utterance_index == 2
    assert client.of("error") == []


async def test_a_result_that_nobody_has_any_more_is_missing_at_once(
    client: RawClient,
    here: Scene,
    frail_redis: EmbeddedRedis,
    gateways: tuple[GatewayProcess, GatewayProcess],
) -> None:
    opened = await client.open(new_session(here.src, here.tgt))
    async with working(await here.node()):
        for mark in range(2):
            await client.send(speech(mark), final=True)
            await client.result(mark)
    await client.acked(2)
    await client.close()
    here.dispatcher.kill()
    with redis.Redis.from_url(frail_redis.url) as store:
        store.delete(*store.scan_iter(match=f"{here.dispatcher.prefix}*:job:*"))
    await here.dispatcher.restart()
    async with raw_client(gateways[1].address) as again:
        await again.resume(opened, results_seen=1, next_seq=2)
        assert reason(await again.missing(1)) == "JOB_NOT_FOUND"
        async with working(await here.node("b")):
            await again.send(speech(2), final=True)
            await again.result(2)
        assert again.outcomes() == [(1, ""), (2, "2")]
        await again.say(results_seen=3, close=session_pb2.Close())
        closed = (await again.event("closed")).closed
        assert (closed.results, closed.missing) == (2, 1)


def forget(server: EmbeddedRedis, prefix: str, session_id: str) -> None:
    with redis.Redis.from_url(server.url) as store:
        assert store.delete(f"{prefix_of(prefix, session_id)}:session:{session_id}") == 1
