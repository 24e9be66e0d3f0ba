"""The dispatcher's connection to a pool service: what shares a message, drains, has no store."""

import asyncio
import contextlib
import time
from typing import Any

import pytest

from lingua_scheduler.services.dispatcher.pool import stream as pool_stream
from lingua_scheduler.services.dispatcher.pool.client import PoolClient
from lingua_scheduler.services.runtime import errors
from lingua_scheduler.services.runtime.errors import DependencyDownError
from lingua_scheduler.services.runtime.rpc.outbox import SHARE_WITHIN_S
from lingua_scheduler.v1 import pool_pb2
from tests.conftest import Eventually
from tests.support.pool_client import allocation
from tests.support.recording_pool import (
    client_of,
    free_address,
    make_client,
    recording_server,
    release,
)


async def test_patient_calls_go_with_the_next_one_before_it_or_soon_alone() -> None:
    async with recording_server() as server, client_of(server.address) as client:
        await client.release(release("j0"))
        server.batches.clear()
        client.persistently("release", release("j1"), 60_000, patient=True)
        client.persistently("release", release("j2"), 60_000, patient=True)
        await asyncio.sleep(0)
        await client.release(release("j3"))
        client.persistently("release", release("j4"), 60_000, patient=True)
        await client.settle(5)
        asked = [
            [each.release.attempt.job_id for each in batch.operations] for batch in server.batches
        ]
        assert asked == [["j1", "j2", "j3"], ["j4"]]
        began = asyncio.get_running_loop().time()
        assert await asyncio.wait_for(persisted(client, "j5"), 5) is not None
        assert asyncio.get_running_loop().time() - began >= SHARE_WITHIN_S / 2


def persisted(client: PoolClient, job: str) -> "asyncio.Future[Any]":
    """A patient call, and its answer."""
    answer = asyncio.get_running_loop().create_future()
    client.persistently("release", release(job), 60_000, answer.set_result, patient=True)
    return answer


async def test_calls_wait_for_a_service_that_starts_at_the_same_time() -> None:
    address = free_address()
    client = make_client(address, timeout_ms=5000)
    opening = asyncio.create_task(client.open())
    await asyncio.sleep(0)
    early = asyncio.create_task(client.release(release("j1")))
    async with recording_server(address) as server:
        await opening
        await early
        assert [len(batch.operations) for batch in server.batches] == [1]
    await client.close()


async def test_operations_of_one_turn_share_a_message_up_to_its_limits() -> None:
    async with (
        recording_server() as server,
        client_of(server.address, timeout_ms=10_000, max_message_bytes=65_536) as client,
    ):
        await asyncio.gather(*(client.release(release(f"j{n}")) for n in range(1200)))
        sizes = [len(batch.operations) for batch in server.batches]
        assert sum(sizes) == 1200
        assert sizes[0] == 500
        assert max(sizes) <= 500
        server.batches.clear()
        large = [allocation("j" * 128, job_key="k" * 5000) for _ in range(30)]
        await asyncio.gather(*map(client.allocate, large))
        assert [len(batch.operations) for batch in server.batches][:2] == [12, 12]
        with pytest.raises(errors.InvalidMessageError, match="LINGUA_MAX_MESSAGE_BYTES"):
            await client.allocate(allocation("j1", job_key="k" * 70_000))
        assert client.up


async def test_a_burst_waits_at_the_client_and_not_at_the_service(eventually: Eventually) -> None:
    async with (
        recording_server() as server,
        client_of(server.address, timeout_ms=30_000) as client,
    ):
        server.answers.clear()
        burst = [asyncio.create_task(client.release(release(f"j{n}"))) for n in range(3000)]
        await eventually(lambda: client.counts.operations == pool_stream.MAX_UNANSWERED)
        await asyncio.sleep(0.1)
        assert client.counts.operations == pool_stream.MAX_UNANSWERED
        server.answers.set()
        await asyncio.gather(*burst)
        assert client.counts.operations == 3000


async def test_a_heartbeat_has_a_message_to_itself() -> None:
    async with recording_server() as server, client_of(server.address) as client:
        await asyncio.gather(
            client.release(release("j1")),
            client.heartbeat(pool_pb2.HeartbeatRequest()),
            client.release(release("j2")),
            client.release(release("j3")),
        )
        kinds = [[one.WhichOneof("operation") for one in b.operations] for b in server.batches]
        assert kinds == [["release"], ["heartbeat"], ["release", "release"]]


async def test_what_a_draining_instance_leaves_unread_runs_on_the_next_stream() -> None:
    async with recording_server() as server, client_of(server.address) as client:
        changes: list[bool] = []
        client.on_change.append(lambda up, _: changes.append(up))
        server.leave_unread = True
        await asyncio.gather(*(client.release(release(f"j{n}")) for n in range(10)))
        assert server.streams == 2
        assert changes == []
        assert client.up


async def fails_for(client: PoolClient, seconds: float) -> int:
    """Calls that fail because of Redis, one after the other; returns how many go well."""
    well, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(DependencyDownError):
            await client.release(release("j1"))
            well += 1
        await asyncio.sleep(0.01)
    return well


async def test_calls_that_fail_together_are_no_reason_to_leave_a_service() -> None:
    async with recording_server() as server, client_of(server.address) as client:
        server.has_store = False
        calls = [client.release(release(f"j{n}")) for n in range(20)]
        failed = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(each, DependencyDownError) for each in failed)
        server.has_store = True
        await asyncio.sleep(2 * pool_stream.STORELESS_S)
        await client.release(release("j1"))
        await asyncio.sleep(0.5)
        assert (server.streams, client.up) == (1, True)


async def test_while_nobody_has_a_store_a_better_service_is_looked_for_rarely() -> None:
    async with (
        recording_server() as first,
        recording_server() as second,
        client_of(f"{first.address},{second.address}") as client,
    ):
        changes: list[bool] = []
        client.on_change.append(lambda up, _: changes.append(up))
        first.has_store = second.has_store = False
        assert await fails_for(client, 4.0) == 0
        # Three greetings each after 0.1, 0.3, 0.7, 1.5, 3.1 s and the time of the looks themselves.
        assert 4 <= first.streams + second.streams <= 1 + 3 * 6
        first.has_store = second.has_store = True
        await client.release(release("j1"))
        assert changes == []


async def test_a_service_without_a_store_is_left_and_no_call_is_made_twice() -> None:
    async with (
        recording_server() as first,
        recording_server() as second,
        client_of(f"{first.address},{second.address}") as client,
    ):
        used, other = (first, second) if first.streams else (second, first)
        used.has_store = False
        deadline = time.monotonic() + 10
        while client.counts.streams < 2:
            assert time.monotonic() < deadline, "it stays where there is no store"
            await fails_for(client, 0.1)
        used.batches.clear()
        other.batches.clear()
        await asyncio.gather(*(client.release(release(f"j{n}")) for n in range(10)))
        assert [len(batch.operations) for batch in (*used.batches, *other.batches)] == [10]
        assert used.batches == []
        assert client.counts.streams == 2


async def test_a_service_is_left_for_the_lack_of_all_cells_but_not_of_one() -> None:
    async with (
        recording_server() as first,
        recording_server() as second,
        client_of(f"{first.address},{second.address}", cells=4) as client,
    ):
        used = first if first.streams else second
        used.has_cell = False
        assert await fails_for(client, 5 * pool_stream.STORELESS_S) == 0
        assert client.counts.streams == 1
        used.has_store = False
        deadline = time.monotonic() + 10
        while client.counts.streams < 2:
            assert time.monotonic() < deadline, "it stays where there is no store"
            await fails_for(client, 0.1)
        await client.release(release("j1"))


async def test_the_span_of_an_operation_goes_along_however_often_it_is_repeated() -> None:
    span = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with recording_server() as server, client_of(server.address) as client:
        await client.release(release("j1"))
        await client.persist("release", release("j2"), 5000, span)
        outside, inside = (batch.operations[0].traceparent for batch in server.batches)
        assert (outside, inside) == ("", span)
