"""Jobs of several cells: each is found in its own, and lists and logs have those of all."""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

import grpc
import pytest

from lingua_scheduler.services.dispatcher.home.kept_results import KeptResults
from lingua_scheduler.services.dispatcher.job_list import JobList
from lingua_scheduler.services.dispatcher.job_log import Position, entry_of
from lingua_scheduler.services.dispatcher.main import DISPATCHER
from lingua_scheduler.services.dispatcher.views import JobViews
from lingua_scheduler.services.runtime import errors
from lingua_scheduler.services.runtime.contract.cell_names import id_in_cell
from lingua_scheduler.services.runtime.instances import Instances
from lingua_scheduler.services.runtime.redis.cells.cells import Cells
from lingua_scheduler.services.runtime.redis.embedded.server import EmbeddedRedis
from lingua_scheduler.services.runtime.redis.script_calls import EndJob
from lingua_scheduler.services.runtime.redis.scripts import load_scripts
from lingua_scheduler.services.runtime.settings.settings import load_settings
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, dispatcher_pb2_grpc
from tests.conftest import Eventually
from tests.support.audio import FORMAT
from tests.support.hosted import hosted
from tests.support.process import environment
from tests.support.rpc_errors import failure

CELLS = 4
LOG_MAX = 300
SMALL = 33_554_432
UNKNOWN = "0" * 31 + "9"


def job_in(cell: int, number: int = 0) -> str:
    """The id of a job that has its home in this cell."""
    return f"{number:029x}{cell:03x}"


@dataclass
class Parts:
    """The parts of a dispatcher that read and write what is in the cells."""

    cells: Cells
    kept: KeptResults
    views: JobViews
    jobs: JobList

    async def fail(self, *jobs: str, session: str = "s") -> None:
        """Jobs end without a node, one after the other."""
        end = EndJob(job_record_ttl_ms=60_000, unplaced_record_ttl_ms=60_000, job_log_max=LOG_MAX)
        for job in jobs:
            call = end.call(
                job=job,
                home="d",
                final="failed",
                why=b"",
                error=common_pb2.ERROR_REASON_NO_CAPABLE_NODE,
                steps=b"",
                key=job,
                tenant="t",
                session=session,
                utterance=0,
                src="zh",
                tgt="en",
                reason=0,
            )
            await self.cells.of_job(job).link.call(*call)

    async def listed(self, **wanted: str | int) -> list[str]:
        """All jobs that fit, over all pages."""
        request, found = dispatcher_pb2.ListJobsRequest(**wanted), list[str]()  # type: ignore[arg-type]
        while True:
            page = await self.jobs.page(request)
            found += [job.job_id for job in page.jobs]
            if not page.next_page_token:
                return found
            request.page_token = page.next_page_token

    async def positions(self) -> dict[str, Position]:
        """Where the entry of each job is in the log of its cell."""
        found = {}
        for cell in self.cells.all:
            for raw in await cell.link.command("XRANGE", f"{cell.prefix}:jobs:log", "-", "+"):
                entry = entry_of(raw)
                assert entry is not None
                found[entry.job_id] = entry.position
        return found

    async def changes(
        self, cursor: str = "", most: int = 0
    ) -> dispatcher_pb2.ListJobChangesResponse:
        """The changes after a cursor."""
        request = dispatcher_pb2.ListJobChangesRequest(cursor=cursor, max_changes=most)
        return await self.jobs.changes(request)

    async def settled(self) -> None:
        """Returns in a later millisecond: entries of this one are not returned yet."""
        await asyncio.sleep(0.003)


@contextlib.asynccontextmanager
async def parts_of(redis_url: str, prefix: str, cells: int = CELLS) -> AsyncIterator[Parts]:
    settings = load_settings(
        environment(
            redis_url=redis_url,
            redis_prefix=prefix,
            cells=cells,
            kept_results_bytes=SMALL,
            redis_timeout_ms=1000,
            instance_id="d",
        )
    )
    made = Cells(settings, load_scripts())
    await made.open()
    instances = Instances(cells=made, settings=settings, service="dispatcher")
    views = JobViews(cells=made, instances=instances, settings=settings)
    try:
        yield Parts(
            cells=made,
            kept=KeptResults(cells=made, settings=settings),
            views=views,
            jobs=JobList(cells=made, views=views),
        )
    finally:
        await made.close()


@pytest.fixture
async def parts(redis_url: str, prefix: str) -> AsyncIterator[Parts]:
    """Four cells on one server."""
    async with parts_of(redis_url, prefix) as made:
        yield made


def result(job: str, size: int = 10) -> dispatcher_pb2.JobResult:
    attempt = common_pb2.AttemptRef(job_id=job, attempt=1)
    return dispatcher_pb2.JobResult(attempt=attempt, speech=b"x" * size)


# ---- single jobs ----


async def test_records_and_results_are_in_the_cell_that_the_job_names(parts: Parts) -> None:
    jobs = [job_in(cell) for cell in range(CELLS)]
    await parts.fail(*jobs)
    for cell, job in zip(parts.cells.all, jobs, strict=True):
        await parts.kept.keep(job, result(job))
        assert await cell.link.command("EXISTS", f"{cell.prefix}:job:{job}") == 1
        assert await cell.link.command("EXISTS", f"{cell.prefix}:job:{job}:result") == 1
        assert (await parts.views.get(job)).job_key == job
        assert await parts.views.state(job) == "failed"
        assert await parts.kept.has(job)
        assert await parts.kept.fetch(job) == result(job)


async def test_a_job_of_a_cell_that_does_not_exist_is_not_known(parts: Parts) -> None:
    attempt = common_pb2.AttemptRef(job_id=UNKNOWN, attempt=1)
    assert await parts.kept.orphan_state(attempt, "n1") == "unknown"
    assert not await parts.kept.keep_orphan(UNKNOWN, result(UNKNOWN), "n1")
    assert not await parts.kept.has(UNKNOWN)
    assert await parts.kept.fetch(UNKNOWN) is None
    assert await parts.views.state(UNKNOWN) == ""
    assert not await parts.views.is_elsewhere(UNKNOWN)
    with pytest.raises(errors.JobNotFoundError):
        await parts.views.get(UNKNOWN)


async def test_callers_get_the_answers_of_unknown_jobs_and_of_wrong_fields(
    redis_url: str, prefix: str
) -> None:
    async with (
        hosted(DISPATCHER, redis_url=redis_url, prefix=prefix, cells=CELLS) as dispatcher,
        dispatcher.channel() as channel,
    ):
        stub: dispatcher_pb2_grpc.DispatcherAsyncStub = dispatcher_pb2_grpc.DispatcherStub(channel)
        get = dispatcher_pb2.GetJobRequest(job_id=UNKNOWN, with_result=True)
        assert (await failure(stub.GetJob(get)))[:2] == (
            grpc.StatusCode.NOT_FOUND,
            "JOB_NOT_FOUND",
        )
        cancel = dispatcher_pb2.CancelJobRequest(job_id=UNKNOWN)
        assert (await failure(stub.CancelJob(cancel)))[1] == "JOB_NOT_FOUND"
        listing = dispatcher_pb2.ListJobsRequest(session_id="s.c9")
        assert list((await stub.ListJobs(listing)).jobs) == []
        spec = dispatcher_pb2.JobSpec(
            session_id="s.c9",
            pair=common_pb2.LanguagePair(src="zh", tgt="en"),
            audio=b"\0\1" * 160,
            audio_format=FORMAT,
        )
        request = dispatcher_pb2.DispatchRequest(job=spec)
        _, why, said = await failure(stub.Dispatch(request))
        assert (why, [each.field for each in said.field_violations]) == (
            "INVALID_MESSAGE",
            ["job.session_id"],
        )


async def test_each_cell_keeps_its_share_of_all_results(parts: Parts) -> None:
    share = SMALL // CELLS
    await parts.fail(job_in(1, 1), job_in(1, 2), job_in(2, 1))
    # A tenant has a quarter.
    fits = result(job_in(1, 1), share // 4 - 100)
    await parts.kept.keep(job_in(1, 1), fits)
    with pytest.raises(errors.BackpressureError):
        await parts.kept.keep(job_in(1, 2), fits)
    await parts.kept.keep(job_in(2, 1), fits)


# ---- lists ----


async def test_jobs_of_all_cells_are_listed_the_latest_first(parts: Parts) -> None:
    jobs = [job_in(random.randrange(CELLS), number) for number in range(60)]
    await parts.fail(*jobs)
    positions = await parts.positions()
    for size in (1, 7, 1000):
        found = await parts.listed(page_size=size)
        assert sorted(found) == sorted(jobs)
        order = [positions[job] for job in found]
        assert order == sorted(order, reverse=True)


async def test_jobs_of_a_session_are_read_from_its_cell_only(parts: Parts) -> None:
    session = id_in_cell("s", 2)
    await parts.fail(job_in(2, 1), job_in(2, 2), session=session)
    # None of the session's jobs can be here.
    await parts.fail(job_in(1, 1), session=session)
    assert await parts.listed(session_id=session) == [job_in(2, 2), job_in(2, 1)]


async def test_a_reader_of_changes_misses_none_of_those_made_meanwhile(parts: Parts) -> None:
    jobs = [job_in(random.randrange(CELLS), number) for number in range(400)]

    async def write(some: list[str]) -> None:
        for job in some:
            await parts.fail(job)

    writing = asyncio.gather(*(write(jobs[at::8]) for at in range(8)))
    found, cursor = list[str](), ""
    deadline = time.monotonic() + 20
    while len(found) < len(jobs) or not writing.done():
        page = await parts.changes(cursor, 50)
        assert not page.gap
        found += [change.job_id for change in page.changes]
        cursor = page.cursor
        assert time.monotonic() < deadline, f"only {len(found)} of {len(jobs)}"
    await writing
    assert sorted(found) == sorted(jobs)
    idle = await parts.changes(cursor)
    assert (list(idle.changes), idle.cursor, idle.more, idle.gap) == ([], cursor, False, False)


async def test_the_first_entry_of_a_cell_is_no_gap_but_trimmed_ones_are(parts: Parts) -> None:
    await parts.fail(job_in(0))
    await parts.settled()
    seen = await parts.changes()
    assert [change.job_id for change in seen.changes] == [job_in(0)]
    await parts.fail(job_in(1))
    await parts.settled()
    first = await parts.changes(seen.cursor)
    assert ([change.job_id for change in first.changes], first.gap) == ([job_in(1)], False)
    await parts.fail(*(job_in(1, number) for number in range(1, 2 * LOG_MAX)))
    await parts.settled()
    assert (await parts.changes(seen.cursor)).gap
    assert not (await parts.changes()).gap


# ---- a cell that is away ----


async def test_without_one_server_the_jobs_of_the_other_go_on_and_all_are_found_again(
    servers: list[EmbeddedRedis], prefix: str, eventually: Eventually
) -> None:
    urls = " ".join(server.url for server in servers)
    async with parts_of(urls, prefix, cells=2) as parts:
        here, away = job_in(0), job_in(1)
        await parts.fail(here, away)
        for job in (here, away):
            await parts.kept.keep(job, result(job))
        servers[1].kill()
        assert await parts.kept.fetch(here) == result(here)
        assert (await parts.views.get(here)).job_id == here
        for call in (parts.kept.fetch(away), parts.views.get(away), parts.views.state(away)):
            with pytest.raises(errors.DependencyDownError):
                await call
        found = await parts.views.records([here, away])
        assert [job.job_id if job else None for job in found] == [here, None]
        assert await parts.listed() == [here]
        assert [change.job_id for change in (await parts.changes()).changes] == [here]
        with pytest.raises(errors.DependencyDownError):
            await parts.listed(session_id=id_in_cell("s", 1))

        servers[1].restart()
        await eventually(lambda: parts.cells.all[1].up)
        assert await parts.kept.fetch(away) == result(away)
        assert sorted(await parts.listed()) == [here, away]
        servers[0].kill()
        servers[1].kill()
        with pytest.raises(errors.DependencyDownError):
            await parts.listed()
        with pytest.raises(errors.DependencyDownError):
            await parts.changes()
