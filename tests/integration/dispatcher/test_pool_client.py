"""The dispatcher's client against real pool services: shared messages, faults, recovery."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from lingua_scheduler.services.dispatcher.pool import retries as pool_retries
from lingua_scheduler.services.dispatcher.pool.client import PoolClient
from lingua_scheduler.services.runtime import errors
from lingua_scheduler.services.runtime.errors import DependencyDownError
from lingua_scheduler.v1 import common_pb2, pool_pb2
from tests.conftest import Eventually
from tests.support.pool_client import Pool, allocation, criteria, pair, ref, registration
from tests.support.recording_pool import (
    TIMEOUT_MS,
    client_of,
    commit,
    free_address,
    make_client,
    release,
)
from tests.support.services import PoolProcess

# Its jobs have ids of their own, and its keys are those of one cell.
pytestmark = pytest.mark.usefixtures("one_cell")

RELEASED = pool_pb2.ReleaseResponse.OUTCOME_RELEASED
COMMITTED = pool_pb2.CommitResponse.OUTCOME_COMMITTED


@pytest.fixture
async def client(pool: Pool) -> AsyncIterator[PoolClient]:
    # A machine that runs other tests is no place for the default of a second.
    async with client_of(pool.process.address, timeout_ms=10_000) as client:
        yield client


async def started(process: PoolProcess) -> PoolProcess:
    process.start()
    await asyncio.to_thread(process.wait_ready)
    return process


async def test_every_operation_gets_its_own_answer(client: PoolClient) -> None:
    registered = await client.register_node(registration("n1"))
    placed = await client.allocate(allocation("j1", session_id="s1"))
    assert (placed.placement.node_id, placed.state) == ("n1", common_pb2.JOB_STATE_RESERVED)
    assert (await client.commit(commit("j1"))).outcome == COMMITTED
    beat = pool_pb2.NodeBeat(node_id="n1", epoch=registered.epoch, running=[ref("j1")])
    assert not (await client.heartbeat(pool_pb2.HeartbeatRequest(beats=[beat]))).problems
    node = (await client.get_node(pool_pb2.GetNodeRequest(node_id="n1"))).node
    assert node.running == 1
    done = pool_pb2.CompleteRequest(
        attempt=ref("j1"), node_id="n1", outcome=pool_pb2.ATTEMPT_OUTCOME_SUCCEEDED
    )
    assert (await client.complete(done)).state == common_pb2.JOB_STATE_DONE
    await client.allocate(allocation("j2"))
    assert (await client.release(release("j2"))).outcome == RELEASED
    binding = pool_pb2.BindSessionRequest(
        session_id="s1",
        pair=pair("zh>en"),
        kind=pool_pb2.BINDING_KIND_TIMEOUT,
        node_id="n1",
        utterance_index=1,
    )
    assert (await client.bind_session(binding)).bound
    clearing = pool_pb2.ClearSessionRequest(session_id="s1", pairs=[pair("zh>en")])
    assert (await client.clear_session(clearing)).cleared == 1
    draining = pool_pb2.SetNodeHealthRequest(
        node_id="n1", epoch=registered.epoch, health=common_pb2.NODE_HEALTH_DRAINING
    )
    answer = await client.set_node_health(draining)
    assert answer.node.health == common_pb2.NODE_HEALTH_DRAINING
    assert (await client.remove_node(pool_pb2.RemoveNodeRequest(node_id="n1"))).removed


async def test_errors_of_the_service_are_raised_as_what_they_were_there(client: PoolClient) -> None:
    with pytest.raises(errors.NoCapableNodeError):
        await client.allocate(allocation("j1", wants=criteria("qaa>qab")))
    with pytest.raises(errors.InvalidMessageError) as invalid:
        await client.allocate(allocation("", wants=criteria()))
    assert invalid.value.fields[0][0] == "job_id"
    with pytest.raises(errors.NodeNotFoundError):
        await client.get_node(pool_pb2.GetNodeRequest(node_id="unknown"))
    await client.register_node(registration("n1", slots=1))
    await client.allocate(allocation("j1"))
    with pytest.raises(errors.AllCandidatesFullOrFailedError):
        await client.allocate(allocation("j2"))


def test_an_error_is_rebuilt_with_all_that_was_said_even_if_its_reason_has_no_class() -> None:
    for kind in errors.LinguaError.__subclasses__():
        error = kind("why", retry_after_ms=5, metadata={"a": "b"}, fields=[("x.y", "bad")])
        rebuilt = errors.from_proto(errors.to_proto(error))
        assert errors.to_proto(rebuilt) == errors.to_proto(error)
    quota = common_pb2.Error(reason=common_pb2.ERROR_REASON_QUOTA_EXCEEDED, message="too many")
    assert errors.to_proto(errors.from_proto(quota)) == quota
    newer = common_pb2.Error(message="of a later version")
    newer.MergeFromString(b"\x08\xe7\x07")
    assert errors.from_proto(newer).reason == 999
    errors.to_trailing_metadata(errors.from_proto(newer))


async def test_two_thousand_operations_at_once_share_a_few_messages(client: PoolClient) -> None:
    await asyncio.gather(
        *(client.register_node(registration(f"n{n}", slots=100)) for n in range(40))
    )
    before = client.counts.messages
    answers = await asyncio.gather(*(client.allocate(allocation(f"j{n}")) for n in range(2000)))
    assert [answer.attempt.job_id for answer in answers] == [f"j{n}" for n in range(2000)]
    assert client.counts.messages - before < 20
    outcomes = await asyncio.gather(
        *(client.release(release(f"j{n}", answers[n].placement.node_id)) for n in range(2000))
    )
    assert {answer.outcome for answer in outcomes} == {RELEASED}
    assert client.counts.operations == 4000
    assert not client._link.current.sent
    assert not client._connection._under_way


async def test_a_caller_that_goes_away_leaves_nothing_behind(client: PoolClient) -> None:
    await client.register_node(registration("n1", slots=5))
    gone = client.allocate(allocation("j1"))
    await asyncio.sleep(0)
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    await client.allocate(allocation("j2"))
    assert not client._link.current.sent
    assert client.up


async def test_a_killed_service_fails_calls_at_once_and_is_found_again_on_its_port(
    redis_url: str, prefix: str, eventually: Eventually
) -> None:
    settings = {"pool_listen": free_address(), "reservation_ttl_ms": 60_000}
    process = await started(PoolProcess(redis_url=redis_url, prefix=prefix, **settings))
    try:
        async with client_of(process.address) as client:
            changes: list[tuple[bool, str]] = []
            client.on_change.append(lambda up, reason: changes.append((up, reason)))
            await client.register_node(registration("n1", slots=1000))
            failed_after: list[float] = []
            done = asyncio.Event()

            async def load(worker: int) -> None:
                number = 0
                while not done.is_set():
                    number += 1
                    began = time.monotonic()
                    try:
                        await client.release(release(f"w{worker}-{number}"))
                    except DependencyDownError:
                        failed_after.append(time.monotonic() - began)
                        await asyncio.sleep(0.01)

            workers = [asyncio.create_task(load(worker)) for worker in range(50)]
            try:
                await eventually(lambda: client.counts.operations > 1000)
                await client.allocate(allocation("kept"))
                process.process.kill()
                await eventually(lambda: not client.up)
                await eventually(lambda: len(failed_after) > 200)
                # Under way or not, nobody waits for a timeout.
                assert max(failed_after) < TIMEOUT_MS / 1000
                assert sorted(failed_after)[len(failed_after) // 2] < 0.05
                began = time.monotonic()
                with pytest.raises(DependencyDownError, match="the pool service cannot be used"):
                    await client.get_node(pool_pb2.GetNodeRequest(node_id="n1"))
                assert time.monotonic() - began < 0.1
                repeated = client.persist("release", release("kept"), 60_000)
                await eventually(lambda: client.counts.retries > 2)
                process.stop()
                await started(process)
                await eventually(lambda: client.up)
                answered = client.counts.operations
                await eventually(lambda: client.counts.operations > answered + 200)
            finally:
                done.set()
                await asyncio.gather(*workers)
            assert (await asyncio.wait_for(repeated, 5)).outcome == RELEASED
            assert client.retries_outstanding == 0
            assert [up for up, _ in changes] == [False, True]
            assert changes[0][1]
            assert client.counts.streams == 2
    finally:
        process.stop()


async def test_a_service_that_hangs_is_given_up_after_the_timeout_and_found_again(
    redis_url: str, prefix: str, eventually: Eventually
) -> None:
    process = await started(PoolProcess(redis_url=redis_url, prefix=prefix))
    try:
        async with client_of(process.address, timeout_ms=500) as client:
            await client.register_node(registration("n1"))
            with process.frozen():
                began = time.monotonic()
                with pytest.raises(DependencyDownError, match="no answer within 500 ms"):
                    await client.allocate(allocation("j1"))
                assert 0.45 < time.monotonic() - began < 1.0
                assert client.counts.timeouts == 1
                await eventually(lambda: not client.up)
                began = time.monotonic()
                with pytest.raises(DependencyDownError):
                    await client.allocate(allocation("j2"))
                assert time.monotonic() - began < 0.1
            await eventually(lambda: client.up)
            await client.allocate(allocation("j3"))
    finally:
        process.stop()


async def test_what_must_get_through_is_given_up_when_its_time_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with client_of(free_address()) as client:
        assert not client.up
        assert await asyncio.wait_for(client.persist("release", release("j1"), 300), 5) is None
        assert client.counts.given_up == 1
        client.persistently("release", release("j2"), 60_000)
        assert client.retries_outstanding == 1
    assert client.retries_outstanding == 0
    assert await client.persist("release", release("j3"), 60_000) is None


async def test_what_is_refused_is_not_repeated(client: PoolClient) -> None:
    assert await asyncio.wait_for(client.persist("release", release(""), 60_000), 5) is None
    assert (client.counts.refused, client.counts.retries) == (1, 0)


async def test_of_too_many_that_must_get_through_the_oldest_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pool_retries, "MAX_RETRIED", 10)
    async with client_of(free_address()) as client:
        futures = [client.persist("release", release(f"j{n}"), 60_000) for n in range(12)]
        await asyncio.sleep(0)
        assert [future.done() for future in futures] == [True] * 2 + [False] * 10
        assert client.counts.dropped == 2


async def test_a_drained_service_is_left_and_its_successor_found(
    redis_url: str, prefix: str, eventually: Eventually
) -> None:
    process = await started(
        PoolProcess(redis_url=redis_url, prefix=prefix, pool_listen=free_address())
    )
    try:
        async with client_of(process.address, timeout_ms=5000) as client:
            await client.register_node(registration("n1"))
            process.terminate()
            await eventually(lambda: not client.up)
            await asyncio.to_thread(process.stop)
            await started(process)
            await eventually(lambda: client.up)
            await client.allocate(allocation("j1"))
    finally:
        process.stop()


async def test_to_close_fails_what_is_under_way(pool: Pool) -> None:
    client = make_client(pool.process.address, timeout_ms=10_000)
    with pytest.raises(DependencyDownError, match="not been opened"):
        await client.release(release("j1"))
    for _ in range(2):
        await client.open()
        calls = [
            asyncio.create_task(client.release(release("j1"))),
            asyncio.create_task(client.get_node(pool_pb2.GetNodeRequest(node_id="n1"))),
        ]
        await asyncio.sleep(0)
        await client.close()
        for call in calls:
            with pytest.raises(errors.LinguaError):
                await call
        with pytest.raises(DependencyDownError, match="closed"):
            await client.release(release("j1"))
