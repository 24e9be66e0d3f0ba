"""What a tenant may use, seen from outside: refused, slowed down, let in again, nothing lost.

Without auth the tenant is what a client says, so every test has tenants of its own.
"""

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator

import grpc
import pytest

from lingua_scheduler.services.runtime.errors import from_rpc_error
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, pool_pb2, session_pb2
from tests.support.audio import speech
from tests.support.pool_client import Pool, connected
from tests.support.raw_client import RawClient, heard, new_session, raw_client, working
from tests.support.rpc_errors import reason
from tests.support.scene import Scene, scene
from tests.support.services import DispatcherProcess, GatewayProcess, PoolProcess

QUEUE_WAIT_MS = 400
RESUME_WITHIN_MS = 3000
SECONDS_A_MINUTE = 60


@pytest.fixture(scope="module")
def dispatcher(pool_process: PoolProcess, redis_url: str) -> Iterator[DispatcherProcess]:
    """What clients ask of it themselves (Dispatch) has its own limit."""
    with DispatcherProcess(
        pool=pool_process,
        redis_url=redis_url,
        ack_timeout_ms=4000,
        queue_wait_ms=QUEUE_WAIT_MS,
        quota_jobs=1,
        quota_audio_s_per_minute=SECONDS_A_MINUTE,
    ) as process:
        yield process
        assert not process.faults(), process.log()


@pytest.fixture(scope="module")
def gateway(
    dispatcher: DispatcherProcess, pool_process: PoolProcess, redis_url: str
) -> Iterator[GatewayProcess]:
    """A gateway whose tenants have two sessions and two jobs, and a minute of speech a minute."""
    with _gateway(dispatcher, pool_process, redis_url) as process:
        yield process
        assert not process.faults(), process.log()


def _gateway(
    dispatcher: DispatcherProcess, pool: PoolProcess, redis_url: str, **settings: int
) -> GatewayProcess:
    return GatewayProcess(
        pool=pool,
        redis_url=redis_url,
        dispatchers=dispatcher.address,
        hangover_manual_ms=0,
        resume_within_ms=RESUME_WITHIN_MS,
        quota_sessions=2,
        quota_jobs=2,
        quota_audio_s_per_minute=SECONDS_A_MINUTE,
        **settings,
    )


@pytest.fixture
async def corner(dispatcher: DispatcherProcess, pool_process: PoolProcess) -> AsyncIterator[Scene]:
    async with scene(dispatcher, pool_process) as made:
        yield made


@pytest.fixture
async def pool(pool_process: PoolProcess, redis_url: str) -> AsyncIterator[Pool]:
    """The shared pool service, as it is: the store is not emptied."""
    async with connected(pool_process, redis_url) as client:
        yield client


@pytest.fixture
def tenant() -> str:
    return f"t{uuid.uuid4().hex[:8]}"


@pytest.fixture
async def connect(gateway: GatewayProcess) -> AsyncIterator[Callable[[], RawClient]]:
    """Makes clients of the gateway."""
    async with contextlib.AsyncExitStack() as stack:
        made: list[RawClient] = []

        def new() -> RawClient:
            made.append(RawClient(gateway.address))
            stack.push_async_callback(made[-1].close)
            return made[-1]

        yield new


async def close(client: RawClient, seen: int = 0) -> None:
    """Closes a session as a client does that has seen everything."""
    await client.say(results_seen=seen, close=session_pb2.Close())
    await client.event("closed")
    await client.status()


async def is_let_in(client: RawClient) -> bool:
    """Whether the answer to an open is that it is."""
    answers = [asyncio.create_task(client.event(kind)) for kind in ("opened", "error")]
    await asyncio.wait(answers, return_when=asyncio.FIRST_COMPLETED)
    for each in answers:
        each.cancel()
    await asyncio.gather(*answers, return_exceptions=True)
    return client.told() == ["opened"]


async def over_quota(client: RawClient, limit: str) -> common_pb2.Error:
    """The refusal of an open, which comes as an event and as the status."""
    said = await client.refused("QUOTA_EXCEEDED")
    assert await client.status() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert said.metadata["limit"] == limit
    return said


async def use_up(pool: Pool, scene_: Scene, tenant: str, audio_ms: int) -> None:
    """A job of so much speech, which is over at once, so that nothing but the speech counts."""
    job_id = f"long-{uuid.uuid4().hex[:8]}"
    placed = await pool.stub.Allocate(
        pool_pb2.AllocateRequest(
            job_id=job_id,
            attempt=1,
            criteria=pool_pb2.NodeCriteria(
                pair=common_pb2.LanguagePair(src=scene_.src, tgt=scene_.tgt), require_tts=True
            ),
            tenant=tenant,
            limits=common_pb2.TenantLimits(audio_ms_per_minute=SECONDS_A_MINUTE * 1000),
            audio_ms=audio_ms,
        )
    )
    await pool.stub.Complete(
        pool_pb2.CompleteRequest(
            attempt=placed.attempt,
            node_id=placed.placement.node_id,
            outcome=pool_pb2.ATTEMPT_OUTCOME_SUCCEEDED,
        )
    )


# ---- sessions ----


async def test_a_tenant_with_all_its_sessions_is_refused_until_one_ends(
    connect: Callable[[], RawClient], gateway: GatewayProcess, tenant: str
) -> None:
    first, second, third, other = connect(), connect(), connect(), connect()
    new = new_session("qaa", tenant=tenant)
    await first.open(new)
    await second.open(new)
    refused = await gateway.metric("lingua_quota_refused_total", limit="sessions")

    await third.say(open=session_pb2.Open(new=new))
    said = await over_quota(third, "sessions")

    assert (said.metadata["used"], said.metadata["allowed"]) == ("2", "2")
    assert said.retry_after_ms > 0
    assert await gateway.metric("lingua_quota_refused_total", limit="sessions") == refused + 1
    await other.open(new_session("qaa", tenant=f"{tenant}-other"))
    await close(first)
    await connect().open(new)


async def test_of_many_that_open_at_once_as_many_are_let_in_as_may(
    connect: Callable[[], RawClient], tenant: str
) -> None:
    clients = [connect() for _ in range(20)]
    new = new_session("qaa", tenant=tenant)
    await asyncio.gather(*(each.say(open=session_pb2.Open(new=new)) for each in clients))

    assert sorted([await is_let_in(each) for each in clients]) == [False] * 18 + [True] * 2


async def test_the_sessions_of_a_killed_gateway_can_be_resumed_and_do_not_count_for_ever(
    connect: Callable[[], RawClient],
    dispatcher: DispatcherProcess,
    pool_process: PoolProcess,
    redis_url: str,
    tenant: str,
) -> None:
    new = new_session("qaa", tenant=tenant)
    with _gateway(dispatcher, pool_process, redis_url) as dying:
        async with raw_client(dying.address) as one, raw_client(dying.address) as two:
            opened = await one.open(new)
            await two.open(new)
            dying.kill()
    refused = connect()
    await refused.say(open=session_pb2.Open(new=new))
    await over_quota(refused, "sessions")

    # The limit is reached, and counts nothing twice.
    again = connect()
    await again.resume(opened)

    deadline = time.monotonic() + 10 * RESUME_WITHIN_MS / 1000
    while True:
        client = connect()
        await client.say(open=session_pb2.Open(new=new))
        if await is_let_in(client):
            break
        assert time.monotonic() < deadline
        await asyncio.sleep(0.1)
    # That was the place of the one that nobody came for: the other goes on.
    last = connect()
    await last.say(open=session_pb2.Open(new=new))
    await over_quota(last, "sessions")
    await close(again)


# ---- jobs in flight ----


async def test_jobs_beyond_the_limit_wait_for_the_first_to_end_and_all_come_in_order(
    connect: Callable[[], RawClient], corner: Scene, tenant: str
) -> None:
    node = await corner.node(slots=20)
    client, other = connect(), connect()
    await client.open(new_session(corner.src, corner.tgt, tenant=tenant))
    await other.open(new_session(corner.src, corner.tgt, tenant=f"{tenant}-other"))
    for mark in range(12):
        await client.send(speech(mark), final=True)
    first, second = await node.take_job(), await node.take_job()
    # What is asked for at the same time has no order among it.
    assert first.job.utterance_index != second.job.utterance_index
    assert not first.job.HasField("limits")

    # The others wait, for longer than a dispatcher does, and do not hold up another tenant.
    await client.error("QUOTA_EXCEEDED")
    await other.send(speech(100), final=True)
    foreign = await node.take_job()
    assert heard(foreign.job) == "100"
    await node.result(foreign, "theirs")
    await other.result(0)
    assert not any(each.HasField("job_assign") for each in node.inbox.waiting)

    await node.result(second, heard(second.job))
    third = await node.take_job()
    assert heard(third.job) in map(str, range(12))
    async with working(node):
        await node.result(first, heard(first.job))
        await node.result(third, heard(third.job))
        await client.result(11)

    assert client.outcomes() == [(mark, str(mark)) for mark in range(12)]
    assert not other.of("error")


async def test_a_client_that_asks_the_dispatcher_itself_has_the_limits_of_the_settings(
    corner: Scene, tenant: str
) -> None:
    node = await corner.node(slots=5)

    def asks(index: int) -> dispatcher_pb2.DispatchRequest:
        spec = corner.spec(index, limits=common_pb2.TenantLimits(jobs=100), audio_ms=1)
        spec.tenant = tenant
        return dispatcher_pb2.DispatchRequest(job=spec)

    one = asyncio.ensure_future(corner.stub.Dispatch(asks(0)))
    running = await node.take_job()
    await one
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await corner.stub.Dispatch(asks(1))

    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    said = from_rpc_error(caught.value)
    assert said is not None
    assert (reason(said), said.retry_after_ms) == ("QUOTA_EXCEEDED", 200)
    assert dict(said.metadata) == {"limit": "jobs", "used": "1", "allowed": "1"}

    # One that waits goes on as soon as there is a place.
    two = asyncio.ensure_future(corner.stub.Dispatch(asks(2)))
    await node.result(running)
    await node.take_job()
    await two


# ---- speech ----


async def test_a_tenant_that_has_spoken_too_much_is_slowed_down_and_loses_nothing(
    connect: Callable[[], RawClient], corner: Scene, pool: Pool, tenant: str
) -> None:
    node = await corner.node(slots=5)
    client = connect()
    await client.open(new_session(corner.src, corner.tgt, tenant=tenant))
    ahead_ms = SECONDS_A_MINUTE * 1000 + 2 * QUEUE_WAIT_MS
    await use_up(pool, corner, tenant, ahead_ms)
    async with working(node):
        for mark in range(3):
            await client.send(speech(mark), final=True)
        said = await client.error("QUOTA_EXCEEDED")
        await client.result(2)

    assert said.metadata["limit"] == "audio"
    assert 0 < said.retry_after_ms <= 2 * QUEUE_WAIT_MS
    assert client.outcomes() == [(mark, str(mark)) for mark in range(3)]


async def test_what_is_not_let_through_until_its_deadline_is_missing_for_that_reason(
    dispatcher: DispatcherProcess,
    pool_process: PoolProcess,
    redis_url: str,
    corner: Scene,
    pool: Pool,
    tenant: str,
) -> None:
    node = await corner.node(slots=5)
    await use_up(pool, corner, tenant, 3 * SECONDS_A_MINUTE * 1000)
    soon = {"job_timeout_ms": 1000, "result_deadline_ms": 1000}
    with _gateway(dispatcher, pool_process, redis_url, **soon) as hasty:
        async with raw_client(hasty.address) as client, working(node):
            await client.open(new_session(corner.src, corner.tgt, tenant=tenant))
            await client.send(speech(1), final=True)
            why = await client.missing(0)
            # Its audio is not wanted any more.
            await client.acked(1)

    assert reason(why) == "QUOTA_EXCEEDED"
    assert [reason(each) for each in client.of("error")] == ["QUOTA_EXCEEDED"]


async def test_the_pool_service_says_which_limit_and_when_to_come_again(
    corner: Scene, pool: Pool, pool_process: PoolProcess, tenant: str
) -> None:
    await corner.node(slots=5)
    await use_up(pool, corner, tenant, 2 * SECONDS_A_MINUTE * 1000)
    refused = await pool_process.metric("lingua_quota_refused_total", limit="audio")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await use_up(pool, corner, tenant, 1)

    said = from_rpc_error(caught.value)
    assert said is not None
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert reason(said) == "QUOTA_EXCEEDED"
    assert 0 < said.retry_after_ms <= SECONDS_A_MINUTE * 1000
    assert (said.metadata["limit"], said.metadata["allowed"]) == ("audio", "60000")
    assert SECONDS_A_MINUTE * 1000 <= int(said.metadata["used"]) <= 2 * SECONDS_A_MINUTE * 1000
    assert await pool_process.metric("lingua_quota_refused_total", limit="audio") == refused + 1
