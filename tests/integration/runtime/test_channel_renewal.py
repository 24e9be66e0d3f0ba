"""Connections between services are made anew under load: added instances get work, nothing is lost.

The instances of a service have one port of several loopback addresses, and a name that stands for
those that are ready.
"""

import asyncio
import contextlib
import itertools
import os
import sys
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import pytest

from lingua_scheduler.services.dispatcher.pool.client import PoolClient
from lingua_scheduler.services.dispatcher.pool.connection import PoolConnection
from lingua_scheduler.services.runtime.rpc import renewed_channel
from lingua_scheduler.services.runtime.rpc.channels import Dialer
from lingua_scheduler.services.runtime.settings.settings import load_settings
from lingua_scheduler.services.session_gateway.dispatcher_link import DispatcherLink
from lingua_scheduler.v1 import dispatcher_pb2, pool_pb2
from tests.conftest import Eventually
from tests.support.name_server import NameServer, name_server
from tests.support.pool_client import ref, registration
from tests.support.ports import free_port
from tests.support.process import SOON_S
from tests.support.raw_gateway import id_of
from tests.support.recording_pool import recording_server
from tests.support.scene import Scene, together
from tests.support.services import DispatcherProcess, PoolProcess, ServiceProcess, all_running

RENEW_MS = 200
# Some renewals, each of which leaves something behind or does not.
RENEWALS = 5
HOSTS = ("127.0.0.1", "127.0.0.2")

pytestmark = [
    pytest.mark.skipif(
        sys.platform != "linux", reason="needs all of 127.0.0.0/8, which only Linux listens on"
    ),
    # Its jobs have ids of their own, which name no cell.
    pytest.mark.usefixtures("one_cell"),
]


@pytest.fixture(scope="module")
def pools(redis_url: str) -> Iterator[list[PoolProcess]]:
    """Two pool services on one port."""
    prefix, port = f"test:{uuid.uuid4().hex[:8]}", free_port()
    processes = [
        PoolProcess(
            redis_url=redis_url, prefix=prefix, pool_listen=f"{host}:{port}", redis_timeout_ms=4000
        )
        for host in HOSTS
    ]
    with all_running(processes):
        yield processes


@pytest.fixture(scope="module")
def dispatchers(pools: list[PoolProcess], redis_url: str) -> Iterator[list[DispatcherProcess]]:
    """Two dispatchers on one port."""
    port = free_port()
    processes = [
        DispatcherProcess(
            pool=pools[0],
            redis_url=redis_url,
            dispatcher_listen=f"{host}:{port}",
            ack_timeout_ms=60_000,
            reservation_ttl_ms=90_000,
        )
        for host in HOSTS
    ]
    with all_running(processes):
        yield processes


@pytest.fixture
async def names() -> AsyncIterator[NameServer]:
    """The first instance is ready."""
    async with name_server() as made:
        made.ready = [HOSTS[0]]
        yield made


def named(names: NameServer, processes: Sequence[ServiceProcess]) -> str:
    return names.target("service.test", int(processes[0].address.rsplit(":", 1)[1]))


@contextlib.asynccontextmanager
async def client_of(address: str) -> AsyncIterator[PoolClient]:
    client = PoolClient(
        PoolConnection(
            address=address,
            timeout_ms=10_000,
            max_message_bytes=1_000_000,
            silence_ms=10_000,
            renew_ms=RENEW_MS,
            dialer=Dialer(load_settings({})),
        )
    )
    await client.open()
    try:
        yield client
    finally:
        await client.close()


class Calls:
    """People who call the pool service all the time; a call that fails ends the test."""

    def __init__(self, client: PoolClient) -> None:
        self._client = client
        self._enough = asyncio.Event()
        self.answered = 0

    async def make(self) -> None:
        """Returns when it is enough."""
        async with asyncio.TaskGroup() as tasks:
            for worker in range(8):
                tasks.create_task(self._operate(worker))
            tasks.create_task(self._ask())

    def stop(self) -> None:
        self._enough.set()

    async def _operate(self, worker: int) -> None:
        cause = pool_pb2.RELEASE_CAUSE_CANCELLED
        for number in itertools.count():
            if self._enough.is_set():
                return
            attempt = ref(f"w{worker}-{number}")
            request = pool_pb2.ReleaseRequest(attempt=attempt, node_id="n1", cause=cause)
            await self._client.release(request)
            self.answered += 1
            await asyncio.sleep(0.002)

    async def _ask(self) -> None:
        while not self._enough.is_set():
            await self._client.get_node(pool_pb2.GetNodeRequest(node_id="n1"))
            await asyncio.sleep(0.002)


@contextlib.asynccontextmanager
async def calling(client: PoolClient) -> AsyncIterator[Calls]:
    await client.register_node(registration("n1"))
    calls = Calls(client)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(calls.make())
        yield calls
        calls.stop()


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


async def test_a_pool_service_that_is_added_is_used_and_no_call_fails(
    names: NameServer, pools: list[PoolProcess], eventually: Eventually
) -> None:
    async with client_of(named(names, pools)) as client:
        files, tasks = open_files(), len(asyncio.all_tasks())
        async with calling(client) as calls:
            await eventually(lambda: calls.answered > 50)
            assert await pools[1].metric("lingua_pool_releases_total") == 0
            names.ready.append(HOSTS[1])
            await pools[1].reaches(50, "lingua_pool_releases_total")
            streams = client.counts.streams
            await eventually(lambda: client.counts.streams >= streams + RENEWALS, 20)
            # One that calls, one that ends, one that is being opened.
            assert client._link.channel.channels <= 3
        assert client.counts.timeouts == 0
        await eventually(lambda: client._link.channel.channels == 1)
        assert list(client._link.peers) == [client._link.current]
        assert len(asyncio.all_tasks()) <= tasks + 1
        await eventually(lambda: open_files() <= files + len(HOSTS) * 2)


async def test_the_old_connection_stays_in_use_while_no_new_one_can_be_made(
    names: NameServer,
    pools: list[PoolProcess],
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(renewed_channel, "_RETRY_S", 0.1)
    async with client_of(named(names, pools)) as client, calling(client) as calls:
        # Nobody listens there.
        names.ready = ["127.0.0.3"]
        await eventually(lambda: caplog.text.count("connection not renewed") >= 2)
        answered, streams = calls.answered, client.counts.streams
        await eventually(lambda: calls.answered > answered + 50)
        names.ready = [HOSTS[1]]
        await eventually(lambda: client.counts.streams > streams)
        before = await pools[1].metric("lingua_pool_releases_total")
        await pools[1].reaches(before + 50, "lingua_pool_releases_total")


async def test_calls_under_way_are_answered_on_the_connection_that_is_left(
    eventually: Eventually,
) -> None:
    async with recording_server() as server, client_of(server.address) as client:
        server.answers.clear()
        cause = pool_pb2.RELEASE_CAUSE_CANCELLED
        calls = []
        for number in range(4):
            request = pool_pb2.ReleaseRequest(attempt=ref(f"j{number}"), node_id="n", cause=cause)
            calls.append(asyncio.create_task(client.release(request)))
            streams = client.counts.streams
            await eventually(lambda least=streams: client.counts.streams > least)
        assert not any(call.done() for call in calls)
        server.answers.set()
        await asyncio.gather(*calls)
        # Each ran once.
        assert sum(len(batch.operations) for batch in server.batches) == len(calls)
        assert client.counts.streams > len(calls)
        await eventually(lambda: len(client._link.peers) <= 2)


class Owner:
    """Submits jobs of one session, and writes down what comes of them."""

    def __init__(self, link: DispatcherLink, corner: Scene, session: str) -> None:
        self._link = link
        self._corner = corner
        self._session = session
        self._changed = asyncio.Event()
        self.told: Counter[tuple[str, str]] = Counter()

    def on_job_event(self, event: dispatcher_pb2.JobEvent) -> None:
        self.told[event.job_id, event.WhichOneof("event") or ""] += 1
        self._changed.set()

    def submit(self, number: int) -> str:
        spec = self._corner.spec(number, session_id=self._session)
        request = dispatcher_pb2.SubmitRequest()
        request.submissions.add().job.CopyFrom(spec)
        self._link.submit(request, job_id=id_of(spec), index=number, owner=self)
        return id_of(spec)

    async def until(self, job: str, kind: str) -> None:
        async with asyncio.timeout(SOON_S):
            while not self.told[job, kind]:
                self._changed.clear()
                await self._changed.wait()

    async def work(self, enough: asyncio.Event) -> int:
        """Submits one job after the other; how many."""
        for number in itertools.count():
            if enough.is_set():
                break
            job = self.submit(number)
            await self.until(job, "delivered")
            self._link.taken(job)
            await asyncio.sleep(0.002)
        return number


@contextlib.asynccontextmanager
async def linked(address: str, **settings: Any) -> AsyncIterator[DispatcherLink]:
    given = {"dispatcher_address": address, "channel_renew_ms": RENEW_MS, **settings}
    link = DispatcherLink(
        settings=load_settings({}).model_copy(update=given), dialer=Dialer(load_settings({}))
    )
    await link.open()
    try:
        yield link
    finally:
        await link.close()


@contextlib.asynccontextmanager
async def quick_node(corner: Scene) -> AsyncIterator[Counter[str]]:
    """A node that does every job at once; gives how often it got each."""
    node, got = await corner.node("quick", slots=100), Counter[str]()

    async def work() -> None:
        while True:
            assign = await node.expect_assign(within=3600)
            got[assign.attempt.job_id] += 1
            await node.ack(assign)
            await node.result(assign)

    task = asyncio.create_task(work())
    try:
        yield got
    finally:
        task.cancel()
        (ended,) = await asyncio.gather(task, return_exceptions=True)
        assert isinstance(ended, asyncio.CancelledError), repr(ended)


async def test_a_dispatcher_that_is_added_gets_jobs_and_none_is_lost(
    names: NameServer,
    pools: list[PoolProcess],
    dispatchers: list[DispatcherProcess],
    eventually: Eventually,
) -> None:
    async with (
        together(dispatchers, pools[0]) as (corner, _),
        quick_node(corner) as got,
        linked(named(names, dispatchers)) as link,
    ):
        files, tasks = open_files(), len(asyncio.all_tasks())
        changes: list[bool] = []
        link.on_change.append(lambda up, _: changes.append(up))
        owners = [Owner(link, corner, f"s{at}-{corner.src}") for at in range(5)]
        enough, finished = asyncio.Event(), "lingua_dispatcher_jobs_finished_total"
        working = [asyncio.create_task(owner.work(enough)) for owner in owners]
        await dispatchers[0].reaches(20, finished)
        assert await dispatchers[1].metric(finished) == 0
        names.ready.append(HOSTS[1])
        await dispatchers[1].reaches(20, finished)
        for _ in range(RENEWALS):
            current = link._connection.current
            await eventually(lambda old=current: link._connection.current is not old)
        enough.set()
        jobs = sum(await asyncio.gather(*working))
        told = sum((owner.told for owner in owners), Counter[tuple[str, str]]())
        assert len(got) == jobs
        assert set(got.values()) == {1}
        assert {kind for _, kind in told} == {"accepted", "delivered"}
        assert set(told.values()) == {1}
        assert changes == []
        # Each half second, those that have no job any more end.
        await eventually(
            lambda: len(link._connection.peers) <= 3 and link._connection.channel.channels <= 4
        )
        assert len(asyncio.all_tasks()) <= tasks + 20
        await eventually(lambda: open_files() <= files + 20)


async def test_a_job_stays_on_its_connection_until_it_is_over(
    names: NameServer,
    pools: list[PoolProcess],
    dispatchers: list[DispatcherProcess],
    eventually: Eventually,
) -> None:
    names.ready.append(HOSTS[1])
    async with (
        together(dispatchers, pools[0]) as (corner, _),
        linked(named(names, dispatchers)) as link,
    ):
        node, owner = await corner.node(), Owner(link, corner, f"s-{corner.src}")
        job, old = owner.submit(0), link._connection.current
        assign = await node.take_job()
        for _ in range(4):
            current = link._connection.current
            await eventually(lambda was=current: link._connection.current is not was)
        assert link._jobs[job].stream is old
        await node.result(assign)
        await owner.until(job, "delivered")
        assert old in link._connection.peers
        link.taken(job)
        await eventually(lambda: old not in link._connection.peers)
        assert set(owner.told.values()) == {1}
        await node.expect_received(assign)
        assert await node.settled() == []


async def test_a_job_that_takes_too_long_is_moved_to_the_new_connection_and_has_one_result(
    names: NameServer,
    pools: list[PoolProcess],
    dispatchers: list[DispatcherProcess],
    eventually: Eventually,
) -> None:
    async with (
        together(dispatchers, pools[0]) as (corner, _),
        linked(named(names, dispatchers), result_deadline_ms=300) as link,
    ):
        node, owner = await corner.node(), Owner(link, corner, f"s-{corner.src}")
        job, old = owner.submit(0), link._connection.current
        assign = await node.take_job()
        await eventually(lambda: link._jobs[job].stream not in (old, None))
        await node.result(assign)
        await owner.until(job, "delivered")
        link.taken(job)
        assert owner.told[job, "delivered"] == 1
        assert not owner.told[job, "failed"]
        await node.expect_received(assign)
        assert await node.settled() == []
