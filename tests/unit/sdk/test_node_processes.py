"""Blocking handlers in worker processes."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from lingua_scheduler.sdk import Held, Job, JobError, Partial, Translated
from lingua_scheduler.sdk.node.handlers import Item
from lingua_scheduler.sdk.node.processes import ProcessWorkers
from lingua_scheduler.v1 import common_pb2
from lingua_scheduler.v1.dispatcher_pb2 import JobAssign, JobSpec
from tests.conftest import Eventually

WITHIN_S = 60.0


def assign(**features: str) -> JobAssign:
    spec = JobSpec(pair=common_pb2.LanguagePair(src="en", tgt="es"), features=features)
    return JobAssign(attempt=common_pb2.AttemptRef(job_id="j", attempt=1), job=spec)


def talkative(job: Job) -> Iterator[Item]:
    yield Partial(source="a")
    yield Translated(source=str(os.getpid()))


def holding(job: Job) -> Held:
    return Held()


def stuck(job: Job) -> None:
    """Reports its process id, and then ignores its cancellation."""
    path = Path(job.features["pid"])
    path.with_suffix(".new").write_text(str(os.getpid()))
    path.with_suffix(".new").rename(path)
    time.sleep(90)


def until_cancelled(job: Job) -> Translated:
    assert job.cancelled.wait(WITHIN_S)
    return Translated(source="cancelled")


def dying(job: Job) -> Translated:
    if "die" in job.features:
        os._exit(1)
    return Translated(source="alive")


@pytest.fixture
async def make() -> AsyncIterator[Callable[..., ProcessWorkers]]:
    made: list[ProcessWorkers] = []

    def workers(handler: Callable[[Job], object]) -> ProcessWorkers:
        made.append(ProcessWorkers(handler, 1))
        return made[-1]

    yield workers
    for each in made:
        each.close()


async def work(workers: ProcessWorkers, job: JobAssign) -> list[Item | None]:
    said: list[Item | None] = []
    await asyncio.wait_for(workers.work(job, workers.flag(), said.append), WITHIN_S)
    return said


async def test_results_come_from_another_process(make: Callable[..., ProcessWorkers]) -> None:
    *partials, result = await work(make(talkative), assign())

    # A partial result may arrive after the result, and is then dropped.
    assert partials in ([], [Partial(source="a")])
    assert isinstance(result, Translated)
    assert result.source != str(os.getpid())


async def test_a_hold_is_said_before_its_result(make: Callable[..., ProcessWorkers]) -> None:
    said = await work(make(holding), assign())

    assert said[-1] == Held()
    assert None in said[:-1]


async def test_a_handler_sees_that_its_job_is_cancelled(
    make: Callable[..., ProcessWorkers],
) -> None:
    workers = make(until_cancelled)
    said: list[Item | None] = []
    flag = workers.flag()
    working = asyncio.create_task(workers.work(assign(), flag, said.append))
    await asyncio.sleep(0)
    flag.set()

    await asyncio.wait_for(working, WITHIN_S)

    assert said == [Translated(source="cancelled")]


async def test_closing_kills_a_process_that_is_busy(
    make: Callable[..., ProcessWorkers], tmp_path: Path, eventually: Eventually
) -> None:
    workers, reported = make(stuck), tmp_path / "pid"
    working = asyncio.create_task(work(workers, assign(pid=str(reported))))
    await eventually(reported.exists, WITHIN_S)
    pid = int(reported.read_text())
    assert is_alive(pid)

    workers.close()

    await eventually(lambda: not is_alive(pid), WITHIN_S)
    with pytest.raises(JobError, match="WORKER_DIED"):
        await working


async def test_after_a_process_has_died_the_next_job_runs(
    make: Callable[..., ProcessWorkers],
) -> None:
    workers = make(dying)
    with pytest.raises(JobError, match="WORKER_DIED"):
        await work(workers, assign(die="yes"))

    assert await work(workers, assign()) == [Translated(source="alive")]


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
