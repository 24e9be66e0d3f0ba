"""What was read a moment ago: one call for many readers."""

import asyncio
from math import inf

import pytest

from lingua_scheduler.services.console.services.kept import Kept
from lingua_scheduler.services.runtime.errors import JobNotFoundError


class Service:
    """Counts what it is asked for, and answers when it may."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.was_asked = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def read(self, name: str) -> str:
        self.asked.append(name)
        self.was_asked.set()
        await self.may_answer.wait()
        if name == "unknown":
            raise JobNotFoundError("there is no such job")
        return f"{name} {len(self.asked)}"


async def test_fifty_readers_cause_one_call() -> None:
    service = Service()
    service.may_answer.clear()
    kept = Kept(service.read, keep_s=lambda _: inf, most=10)
    readers = [asyncio.create_task(kept.get("a")) for _ in range(50)]
    await service.was_asked.wait()
    service.may_answer.set()
    assert set(await asyncio.gather(*readers)) == {"a 1"}
    assert await kept.get("a") == "a 1"
    assert service.asked == ["a"]


async def test_a_reader_who_leaves_does_not_end_the_call_of_the_others() -> None:
    service = Service()
    service.may_answer.clear()
    kept = Kept(service.read, keep_s=lambda _: inf, most=10)
    leaves = asyncio.create_task(kept.get("a"))
    stays = asyncio.create_task(kept.get("a"))
    await service.was_asked.wait()
    leaves.cancel()
    service.may_answer.set()
    assert await stays == "a 1"


async def test_a_value_that_is_not_kept_is_read_again() -> None:
    service = Service()
    kept = Kept(service.read, keep_s=lambda _: 0.0, most=10)
    assert [await kept.get("a"), await kept.get("a")] == ["a 1", "a 2"]
    assert kept.known("a") == "a 2"


async def test_errors_are_kept_as_well() -> None:
    service = Service()
    kept = Kept(service.read, keep_s=lambda _: inf, errors_s=inf, most=10)
    for _ in range(3):
        with pytest.raises(JobNotFoundError):
            await kept.get("unknown")
    assert service.asked == ["unknown"]
    assert kept.known("unknown") is None


async def test_the_least_recently_used_leaves_first() -> None:
    service = Service()
    kept = Kept(service.read, keep_s=lambda _: inf, most=2)
    for name in ("a", "b", "a", "c", "a", "b"):
        await kept.get(name)
    assert service.asked == ["a", "b", "c", "b"]
    assert len(kept) == 2
