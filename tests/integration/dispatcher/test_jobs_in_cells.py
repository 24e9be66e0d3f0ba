"""Jobs of several cells at one real dispatcher and pool service, also while a cell is away."""

import asyncio
import contextlib
import itertools
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from functools import partial

import grpc
import pytest

from lingua_scheduler.services.runtime.contract.cell_names import cell_of_job, id_in_cell, ranked
from lingua_scheduler.services.runtime.redis.embedded.server import EmbeddedRedis
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2
from tests.support.process import SOON_S
from tests.support.raw_gateway import RawGateway
from tests.support.raw_node import RawNode
from tests.support.rpc_errors import failure
from tests.support.scene import Scene, scene
from tests.support.services import (
    PATIENT,
    DispatcherProcess,
    PoolProcess,
    running_dispatcher,
)

CELLS = 4
DONE = common_pb2.JOB_STATE_DONE
DOWN = common_pb2.ERROR_REASON_SCHEDULER_DEPENDENCY_DOWN


def session_in(at: Scene, cell: int) -> str:
    return id_in_cell(f"s-{at.src}", cell)


async def node_in(at: Scene, cell: int, cells: int, slots: int = 10) -> RawNode:
    """A node that the pool service puts into this cell."""
    names = (f"n{number}" for number in itertools.count())
    name = next(each for each in names if ranked(at.hello(each).node_id, range(cells))[0] == cell)
    return await at.node(name, slots=slots)


async def ends_well(gateway: RawGateway, node: RawNode, spec: dispatcher_pb2.JobSpec) -> str:
    """A job that is done; returns its id."""
    job = await gateway.submit(spec)
    await node.result(await node.take_job(), "well")
    assert (await gateway.delivered(job)).result.texts.translated == "well"
    return job


def is_decided(job: str, event: dispatcher_pb2.JobEvent) -> bool:
    """Whether it says that a node has the job, or that none will."""
    return event.job_id == job and event.WhichOneof("event") in ("accepted", "failed")


@pytest.fixture(scope="module")
def processes(redis_url: str) -> Iterator[tuple[PoolProcess, DispatcherProcess]]:
    """Services with four cells on one server."""
    settings = {**PATIENT, "cells": CELLS, "redis_timeout_ms": 4000}
    prefix = f"test:cells-{time.monotonic_ns()}"
    with (
        PoolProcess(redis_url=redis_url, prefix=prefix, **settings) as pool,
        DispatcherProcess(pool=pool, redis_url=redis_url, **settings) as dispatcher,
    ):
        yield pool, dispatcher


@pytest.fixture
async def four(processes: tuple[PoolProcess, DispatcherProcess]) -> AsyncIterator[Scene]:
    """A scene at the dispatcher with four cells."""
    pool, dispatcher = processes
    async with scene(dispatcher, pool) as made:
        yield made


async def test_jobs_of_every_cell_are_done_by_the_node_of_one(four: Scene) -> None:
    node, gateway = await node_in(four, 2, CELLS), four.gateway()
    jobs = [
        await ends_well(gateway, node, four.spec(session_id=session_in(four, cell)))
        for cell in range(CELLS)
    ]
    assert [cell_of_job(job) for job in jobs] == list(range(CELLS))
    for job in jobs:
        record = await four.ended(job)
        assert (record.state, record.attempts[0].node_id) == (DONE, node.node_id)
    listing = dispatcher_pb2.ListJobsRequest(node_id=node.node_id)
    listed = [job.job_id for job in (await four.stub.ListJobs(listing)).jobs]
    assert sorted(listed) == sorted(jobs)
    await four.until(node, lambda each: each is not None and each.used_slots == 0)


async def test_a_result_that_finds_no_gateway_is_kept_in_every_cell(four: Scene) -> None:
    node, gateway = await node_in(four, 1, CELLS), four.gateway()
    jobs = []
    for cell in range(CELLS):
        jobs.append(await gateway.submit(four.spec(session_id=session_in(four, cell))))
    assigns = [await node.take_job() for _ in jobs]
    for job in jobs:
        await gateway.accepted(job)
    await gateway.cut()
    for assign in assigns:
        await node.result(assign, "kept")
        await node.expect_received(assign)
    following = four.gateway()
    for job in jobs:
        await following.attach(job)
        assert (await following.delivered(job)).result.texts.translated == "kept"


# ---- a cell that is away ----


@contextlib.asynccontextmanager
async def across(servers: list[EmbeddedRedis], prefix: str) -> AsyncIterator[Scene]:
    """A scene at services with one cell on each server."""
    urls = " ".join(server.url for server in servers)
    settings = {
        **PATIENT,
        "cells": len(servers),
        # So long that jobs would be seen to wait for a server that is silent.
        "redis_timeout_ms": 5000,
        "heartbeat_stale_ms": 60_000,
    }
    with PoolProcess(redis_url=urls, prefix=prefix, **settings) as pool:
        async with (
            running_dispatcher(pool, urls, **settings) as process,
            scene(process, pool) as made,
        ):
            yield made


async def test_without_one_server_only_its_jobs_are_held_up(
    servers: list[EmbeddedRedis], prefix: str
) -> None:
    async with across(servers, prefix) as at:
        node, leaving = await node_in(at, 0, 2), at.gateway()
        here, away = session_in(at, 0), session_in(at, 1)
        kept = await leaving.submit(at.spec(session_id=away))
        assign = await node.take_job()
        await leaving.accepted(kept)
        await leaving.cut()
        await node.result(assign, "kept")
        await node.expect_received(assign)

        servers[1].kill()
        gateway = at.gateway()
        refused = await gateway.submit(at.spec(1, session_id=away))
        assert (await gateway.failed(refused)).reason == DOWN
        for index in range(20):
            await ends_well(gateway, node, at.spec(index, session_id=here))
        get = dispatcher_pb2.GetJobRequest(job_id=kept)
        assert (await failure(at.stub.GetJob(get)))[:2] == (
            grpc.StatusCode.UNAVAILABLE,
            "SCHEDULER_DEPENDENCY_DOWN",
        )
        assert await at.dispatcher.metric("lingua_dispatcher_pool_up") == 1

        servers[1].restart()
        following = at.gateway()
        await following.attach(kept)
        event = await following.expect(kept, "delivered", 2 * SOON_S)
        assert event.delivered.result.texts.translated == "kept"
        # The pool service finds it again by itself, and gateways submit again until then.
        taking = asyncio.create_task(node.take_job())
        while not event.HasField("accepted"):
            again = await following.submit(at.spec(2, session_id=away))
            event = await following.inbox.take(partial(is_decided, again))
            assert event.HasField("accepted") or event.failed.reason == DOWN
        await node.result(await taking, "well")
        assert (await following.delivered(again)).result.texts.translated == "well"


async def test_a_silent_server_delays_no_job_of_the_other(
    servers: list[EmbeddedRedis], prefix: str
) -> None:
    async with across(servers, prefix) as at:
        node, gateway = await node_in(at, 0, 2), at.gateway()
        await ends_well(gateway, node, at.spec(session_id=session_in(at, 1)))
        os.kill(servers[1].pid, signal.SIGSTOP)
        try:
            waits = await gateway.submit(at.spec(1, session_id=session_in(at, 1)))
            for index in range(10):
                await ends_well(gateway, node, at.spec(index, session_id=session_in(at, 0)))
            assert not [each for each in gateway.inbox.waiting if each.job_id == waits]
        finally:
            os.kill(servers[1].pid, signal.SIGCONT)
        await node.result(await node.take_job(), "late")
        assert (await gateway.delivered(waits)).result.texts.translated == "late"


async def test_a_job_that_waits_for_room_is_not_stuck_behind_one_whose_cell_has_gone(
    servers: list[EmbeddedRedis], prefix: str
) -> None:
    async with across(servers, prefix) as at:
        node, gateway = await node_in(at, 0, 2, slots=1), at.gateway()
        here, away = session_in(at, 0), session_in(at, 1)
        running = await gateway.submit(at.spec(session_id=here))
        assign = await node.take_job()
        first = await gateway.submit(at.spec(session_id=away))
        await at.dispatcher.reaches(1, "lingua_dispatcher_waiting_jobs")
        second = await gateway.submit(at.spec(1, session_id=here))
        await at.dispatcher.reaches(2, "lingua_dispatcher_waiting_jobs")
        servers[1].kill()
        assert (await gateway.failed(first)).reason == DOWN
        await node.result(assign)
        await gateway.delivered(running)
        await node.result(await node.take_job(), "next")
        assert (await gateway.delivered(second)).result.texts.translated == "next"
