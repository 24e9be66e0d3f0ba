"""The log of job changes, as consoles follow it and as the list of jobs shows it."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import redis

from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, pool_pb2
from tests.support.pool_client import Pool, connected
from tests.support.process import SOON_S
from tests.support.rpc_errors import failure
from tests.support.scene import Scene, scene, together
from tests.support.services import DispatcherProcess, PoolProcess, all_running

# Its jobs have ids of their own, and its keys are those of one cell.
pytestmark = pytest.mark.usefixtures("one_cell")

DISPATCHED = common_pb2.JOB_STATE_DISPATCHED
RETRYING = common_pb2.JOB_STATE_RETRYING
DONE = common_pb2.JOB_STATE_DONE
FAILED = common_pb2.JOB_STATE_FAILED
CANCELLED = common_pb2.JOB_STATE_CANCELLED
NO_NODE = common_pb2.ERROR_REASON_NO_CAPABLE_NODE
TIMEOUT = common_pb2.ERROR_REASON_JOB_TIMEOUT
LOG_MAX = 300


@pytest.fixture(scope="module")
def pool_process(redis_url: str) -> Iterator[PoolProcess]:
    """A pool service with a short log."""
    prefix = f"test:changes-{time.monotonic_ns()}"
    with PoolProcess(
        redis_url=redis_url, prefix=prefix, redis_timeout_ms=4000, job_log_max=LOG_MAX
    ) as process:
        yield process


@pytest.fixture(scope="module")
def dispatchers(pool_process: PoolProcess, redis_url: str) -> Iterator[list[DispatcherProcess]]:
    """Two dispatchers whose jobs do not wait long for room."""
    processes = [
        DispatcherProcess(
            pool=pool_process, redis_url=redis_url, instance_id=f"log-{at}", queue_wait_ms=300
        )
        for at in range(2)
    ]
    with all_running(processes):
        yield processes


@pytest.fixture
async def reader(
    dispatchers: list[DispatcherProcess], pool_process: PoolProcess, redis_url: str
) -> AsyncIterator[Scene]:
    """A scene at a dispatcher, with an empty log."""
    with redis.Redis.from_url(redis_url) as client:
        client.delete(f"{pool_process.prefix}:jobs:log")
    async with scene(dispatchers[0], pool_process) as made:
        yield made


@pytest.fixture
async def pool(pool_process: PoolProcess, redis_url: str) -> AsyncIterator[Pool]:
    """The pool service, to change jobs without nodes."""
    async with connected(pool_process, redis_url) as client:
        yield client


async def changes(
    reader: Scene, cursor: str = "", most: int = 0
) -> dispatcher_pb2.ListJobChangesResponse:
    request = dispatcher_pb2.ListJobChangesRequest(cursor=cursor, max_changes=most)
    return await reader.stub.ListJobChanges(request)


async def changes_of(reader: Scene, job: str, number: int) -> list[dispatcher_pb2.JobChange]:
    """Waits until a job has had so many changes."""
    deadline = time.monotonic() + SOON_S
    while True:
        found = [each for each in (await changes(reader)).changes if each.job_id == job]
        if len(found) >= number:
            return found
        assert time.monotonic() < deadline, f"only {found}"
        await asyncio.sleep(0.02)


async def fail(pool: Pool, *jobs: str, **fields: Any) -> None:
    """Jobs end without a node, one after the other."""
    values: dict[str, Any] = {
        "home_instance": "d",
        "state": FAILED,
        "error": common_pb2.Error(reason=NO_NODE),
        "pair": common_pb2.LanguagePair(src="zh", tgt="en"),
        **fields,
    }
    for job in jobs:
        await pool.stub.EndJob(pool_pb2.EndJobRequest(job_id=job, **values))


async def listed(reader: Scene, **wanted: Any) -> list[str]:
    """All jobs that fit, over all pages."""
    request, found = dispatcher_pb2.ListJobsRequest(**wanted), list[str]()
    while True:
        page = await reader.stub.ListJobs(request)
        found += [job.job_id for job in page.jobs]
        if not page.next_page_token:
            return found
        request.page_token = page.next_page_token


async def test_a_job_is_followed_from_its_placement_to_its_result(reader: Scene) -> None:
    node, gateway = await reader.node(), reader.gateway()
    spec = reader.spec(7, reason=common_pb2.FINALIZE_REASON_TIMEOUT)
    job = await gateway.submit(spec)
    await node.held(await node.take_job())
    await gateway.delivered(job)

    placed, done = await changes_of(reader, job, 2)
    assert (placed.state, placed.attempt, placed.outcome) == (DISPATCHED, 1, "")
    assert (done.state, done.attempt, done.outcome) == (DONE, 1, "done")
    assert done.result_kind == dispatcher_pb2.JobResult.KIND_HELD
    assert placed.created_ms == placed.changed_ms == done.created_ms <= done.changed_ms
    for each in (placed, done):
        assert (each.node_id, each.tenant, each.session_id) == (node.node_id, "t", spec.session_id)
        assert (each.utterance_index, each.pair, each.reason) == (7, spec.pair, spec.reason)


async def test_retries_and_the_reason_of_a_failure_are_changes(reader: Scene) -> None:
    first, gateway = await reader.node("a"), reader.gateway()
    job = await gateway.submit(reader.spec())
    assign = await first.take_job()
    second = await reader.node("b")
    await first.fail(assign, worth_retry=True)
    await second.fail(await second.take_job(), worth_retry=False)
    await gateway.failed(job)

    found = await changes_of(reader, job, 5)
    assert [(each.state, each.attempt, each.outcome) for each in found] == [
        (DISPATCHED, 1, ""),
        (RETRYING, 1, "failed"),
        (DISPATCHED, 2, ""),
        (RETRYING, 2, "failed"),
        (FAILED, 2, ""),
    ]
    assert [each.error for each in found] == [0, 0, 0, 0, common_pb2.ERROR_REASON_JOB_FAILED]
    assert [each.node_id for each in found] == [first.node_id] * 2 + [second.node_id] * 3


async def test_a_reader_gets_every_change_once_in_order_by_its_cursor(
    reader: Scene, pool: Pool
) -> None:
    nothing = await changes(reader)
    assert (len(nothing.changes), nothing.more, nothing.gap) == (0, False, False)
    jobs = [f"cursor-{at}" for at in range(25)]
    await fail(pool, *jobs)
    found, cursor = list[str](), nothing.cursor
    for more in (True, True, False):
        page = await changes(reader, cursor, 10)
        assert (page.more, page.gap) == (more, False)
        found += [each.job_id for each in page.changes]
        cursor = page.cursor
    assert found == jobs
    idle = await changes(reader, cursor)
    assert (list(idle.changes), idle.cursor, idle.more, idle.gap) == ([], cursor, False, False)
    await fail(pool, "the-next")
    assert [each.job_id for each in (await changes(reader, cursor)).changes] == ["the-next"]


async def test_a_reader_that_fell_behind_is_told_that_changes_are_gone(
    reader: Scene, pool: Pool
) -> None:
    await fail(pool, "seen")
    seen = await changes(reader)
    await fail(pool, *(f"behind-{at}" for at in range(LOG_MAX // 2)))
    kept = await changes(reader, seen.cursor)
    assert (len(kept.changes), kept.gap) == (LOG_MAX // 2, False)
    await fail(pool, *(f"further-{at}" for at in range(LOG_MAX + 100)))
    late = await changes(reader, seen.cursor)
    assert late.gap
    assert LOG_MAX <= len(late.changes) < 2 * LOG_MAX
    assert not (await changes(reader, late.cursor)).gap
    assert not (await changes(reader)).gap


async def test_a_reader_whose_log_was_lost_reads_the_new_one_from_its_beginning(
    reader: Scene, pool: Pool
) -> None:
    await fail(pool, "before")
    ahead = (await changes(reader)).cursor
    pool.store.delete(f"{pool.process.prefix}:jobs:log")
    assert (await changes(reader, ahead)).cursor == ahead
    await fail(pool, "after")
    again = await changes(reader, ahead)
    assert ([each.job_id for each in again.changes], again.gap) == (["after"], True)
    # The clock of the new primary may be behind.
    pool.store.delete(f"{pool.process.prefix}:jobs:log")
    pool.store.xadd(f"{pool.process.prefix}:jobs:log", {"c": "none of ours"}, id="5-0")
    older = await changes(reader, ahead)
    assert (older.gap, older.cursor) == (True, (await changes(reader)).cursor)
    assert not (await changes(reader, older.cursor)).gap


async def test_a_cursor_that_is_none_is_refused(reader: Scene) -> None:
    for cursor in ("x", "1-0", str(2**64), "-1"):
        _, why, said = await failure(changes(reader, cursor))
        assert (why, [each.field for each in said.field_violations]) == (
            "INVALID_MESSAGE",
            ["cursor"],
        )
    assert (await changes(reader, str(2**64 - 1))).gap is False


async def test_the_list_has_the_latest_change_first_over_all_pages(
    reader: Scene, pool: Pool
) -> None:
    jobs = [f"order-{at:02}" for at in range(30)]
    await fail(pool, *jobs)
    await fail(pool, "order-03", state=FAILED, error=common_pb2.Error(reason=TIMEOUT))
    # The first end of a job is kept, so that changed nothing.
    assert await listed(reader, page_size=7) == jobs[::-1]
    node, gateway = await reader.node(), reader.gateway()
    under_way = await gateway.submit(reader.spec())
    assign = await node.take_job()
    await fail(pool, "order-30")
    assert (await listed(reader, page_size=1))[:3] == ["order-30", under_way, "order-29"]
    await node.result(assign)
    await changes_of(reader, under_way, 2)
    assert (await listed(reader, page_size=2))[:3] == [under_way, "order-30", "order-29"]


async def test_jobs_are_listed_by_direction_reason_and_time(reader: Scene, pool: Pool) -> None:
    await fail(pool, "filter-a", session_id="s1")
    await asyncio.sleep(0.005)
    middle_ms = int(time.time() * 1000)
    await asyncio.sleep(0.005)
    await fail(pool, "filter-b", pair=common_pb2.LanguagePair(src="en", tgt="zh"))
    await fail(pool, "filter-c", error=common_pb2.Error(reason=TIMEOUT))
    await fail(pool, "filter-d", state=CANCELLED, error=common_pb2.Error(reason=TIMEOUT))

    there, back = (common_pb2.LanguagePair(src=a, tgt=b) for a, b in (("zh", "en"), ("en", "zh")))
    assert await listed(reader, pair=back) == ["filter-b"]
    assert await listed(reader, pair=there) == ["filter-d", "filter-c", "filter-a"]
    assert await listed(reader, error=TIMEOUT) == ["filter-d", "filter-c"]
    assert await listed(reader, error=TIMEOUT, state=FAILED) == ["filter-c"]
    assert await listed(reader, error=NO_NODE) == ["filter-b", "filter-a"]
    assert await listed(reader, changed_to_ms=middle_ms) == ["filter-a"]
    assert await listed(reader, changed_from_ms=middle_ms, error=NO_NODE) == ["filter-b"]
    assert await listed(reader, session_id="s1") == ["filter-a"]
    assert await listed(reader, node_id="n1") == []


@pytest.mark.parametrize("apart_ms", [-20, 0, 20])
async def test_a_job_is_in_a_range_by_its_time_of_change_not_by_the_id_of_its_entry(
    reader: Scene, pool: Pool, apart_ms: int
) -> None:
    job = f"edge{apart_ms}"
    await fail(pool, job)
    log = f"{pool.process.prefix}:jobs:log"
    ((_, fields),) = pool.store.xrange(log)
    changed_ms = (await changes(reader)).changes[0].changed_ms
    pool.store.delete(log)
    pool.store.xadd(log, fields, id=f"{changed_ms + apart_ms}-0")
    exactly = {"changed_from_ms": changed_ms, "changed_to_ms": changed_ms}
    assert await listed(reader, **exactly) == [job]
    assert await listed(reader, changed_from_ms=changed_ms + 1) == []
    assert await listed(reader, changed_to_ms=changed_ms - 1) == []


async def test_a_cursor_that_is_none_is_refused_by_its_name(reader: Scene) -> None:
    request = dispatcher_pb2.ListJobChangesRequest(cursor="abc")
    _, why, said = await failure(reader.stub.ListJobChanges(request))
    (violation,) = said.field_violations
    assert (why, violation.field) == ("INVALID_MESSAGE", "cursor")
    assert violation.description == "'abc' must be taken from an earlier response"


async def test_a_range_of_times_that_ends_before_it_begins_is_refused(reader: Scene) -> None:
    request = dispatcher_pb2.ListJobsRequest(changed_from_ms=5, changed_to_ms=4)
    _, why, said = await failure(reader.stub.ListJobs(request))
    assert (why, said.field_violations[0].field) == ("INVALID_MESSAGE", "changed_to_ms")


async def test_a_job_is_listed_by_every_node_that_had_it(reader: Scene) -> None:
    first, gateway = await reader.node("a"), reader.gateway()
    job = await gateway.submit(reader.spec())
    assign = await first.take_job()
    second = await reader.node("b")
    await first.fail(assign, worth_retry=True)
    await second.result(await second.take_job())
    await changes_of(reader, job, 4)
    for node in (first, second):
        assert await listed(reader, node_id=node.node_id, state=DONE) == [job]
        assert await listed(reader, node_id=node.node_id, state=RETRYING) == []


async def test_a_page_is_short_if_many_changes_have_to_be_read_for_it(
    reader: Scene, pool: Pool
) -> None:
    await fail(pool, "first")
    pipeline = pool.store.pipeline(transaction=False)
    for at in range(6000):
        parts = f"gone-{at}|failed|{int(time.time() * 1000)}|0|||0|t|s|0|zh|en|1|1|1|"
        pipeline.xadd(f"{pool.process.prefix}:jobs:log", {"c": parts})
    pipeline.execute()

    request, pages = dispatcher_pb2.ListJobsRequest(state=DONE), 0
    while True:
        page = await reader.stub.ListJobs(request)
        pages += 1
        assert list(page.jobs) == []
        if not page.next_page_token:
            break
        request.page_token = page.next_page_token
    # 5000 entries a page.
    assert pages == 2
    first = await reader.stub.ListJobs(dispatcher_pb2.ListJobsRequest(state=FAILED))
    assert list(first.jobs) == []
    assert first.next_page_token
    assert await listed(reader, state=FAILED) == ["first"]


async def test_the_record_has_what_kind_of_result_it_was_and_nothing_of_it(
    dispatchers: list[DispatcherProcess], pool_process: PoolProcess
) -> None:
    async with together(dispatchers, pool_process) as (home, other):
        node, gateway = await home.node(), home.gateway()
        timeout = common_pb2.FINALIZE_REASON_TIMEOUT
        held = await gateway.submit(home.spec(0, reason=timeout))
        await node.held(await node.take_job())
        await gateway.delivered(held)
        joined = await gateway.submit(home.spec(1, held_utterances=[0]))
        await node.result(await node.take_job(), "secret")
        await gateway.delivered(joined)
        await changes_of(home, joined, 2)

        for reader in (home, other):
            first, second = [(await reader.job(job)).job for job in (held, joined)]
            assert first.result_kind == dispatcher_pb2.JobResult.KIND_HELD
            assert list(first.joined_utterances) == []
            assert second.result_kind == dispatcher_pb2.JobResult.KIND_TRANSLATED
            assert list(second.joined_utterances) == [0]
            assert not second.turn_broken
            assert "secret" not in str(second)
        session = dispatcher_pb2.ListJobsRequest(session_id=home.spec().session_id)
        rows = (await other.stub.ListJobs(session)).jobs
        assert [job.result_kind for job in rows] == [second.result_kind, first.result_kind]
        assert [list(job.joined_utterances) for job in rows] == [[], []]


async def test_a_broken_turn_is_in_the_record(
    dispatchers: list[DispatcherProcess], pool_process: PoolProcess
) -> None:
    async with together(dispatchers, pool_process) as (home, other):
        first, gateway = await home.node("a"), home.gateway()
        long = common_pb2.FINALIZE_REASON_MAX_DURATION
        job = await gateway.submit(home.spec(0, reason=long))
        await first.result(await first.take_job())
        await gateway.delivered(job)
        second = await home.node("b")
        await first.bye()
        offline = common_pb2.NODE_HEALTH_OFFLINE
        await home.until(first, lambda node: node is None or node.health == offline)
        job = await gateway.submit(home.spec(1))
        await second.result(await second.take_job())
        assert (await gateway.delivered(job)).turn_broken
        await changes_of(home, job, 2)
        for reader in (home, other):
            assert (await reader.job(job)).job.turn_broken
