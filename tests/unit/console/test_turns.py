"""Computations on the event loop."""

import asyncio
import time

import pytest

from lingua_scheduler.services.console.http.turns import Measured, Turns


def busy(seconds: float) -> None:
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


async def test_others_get_on_between_any_two_computations() -> None:
    turns, passes, begun = Turns(), 0, []

    async def compute() -> None:
        await turns.next()
        begun.append(passes)

    tasks = [asyncio.create_task(compute()) for _ in range(20)]
    while not all(task.done() for task in tasks):
        passes += 1
        await asyncio.sleep(0)
    assert len(set(begun)) == 20
    assert begun == sorted(begun)


async def test_one_who_leaves_the_queue_does_not_stop_the_others() -> None:
    turns = Turns()
    tasks = [asyncio.create_task(turns.next()) for _ in range(3)]
    await asyncio.sleep(0)
    tasks[0].cancel()
    tasks[1].cancel()
    async with asyncio.timeout(5):
        await tasks[2]


async def test_time_that_work_waits_does_not_count() -> None:
    async def work() -> str:
        busy(0.02)
        await asyncio.sleep(0.2)
        busy(0.02)
        return "done"

    measured = Measured(work())
    assert await measured == "done"
    assert 0.04 <= measured.busy_s < 0.2


async def test_errors_and_cancellations_pass_through() -> None:
    ended = []

    async def failing() -> None:
        await asyncio.sleep(0)
        raise KeyError("a")

    with pytest.raises(KeyError):
        await Measured(failing())

    async def waiting() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cleaned up")

    async def awaiting() -> None:
        await Measured(waiting())

    task = asyncio.create_task(awaiting())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["cleaned up"]
