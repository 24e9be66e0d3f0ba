"""A stream ends when one of its halves does, with that one's error, and leaves no task behind."""

import asyncio
import gc
from collections.abc import AsyncIterator
from typing import Any

import pytest

from lingua_scheduler.services.runtime.errors import InvalidMessageError
from lingua_scheduler.services.runtime.rpc.duplex import run_duplex


class Half:
    """One half of a stream: it goes on until a test says how it ends."""

    def __init__(self) -> None:
        self.end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.may_clean_up = asyncio.Event()
        self.may_clean_up.set()
        self.state = "new"
        self.error_of_clean_up: Exception | None = None

    async def run(self) -> None:
        self.state = "runs"
        try:
            await self.end
            self.state = "returned"
        except BaseException as error:
            self.state = "cleans up"
            await self.may_clean_up.wait()
            self.state = type(error).__name__
            if self.error_of_clean_up is not None:
                raise self.error_of_clean_up from None
            raise


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.fixture
async def complaints() -> AsyncIterator[list[dict[str, Any]]]:
    """What the event loop complains of, such as an error that nobody asked for."""
    heard: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: heard.append(context))
    yield heard
    assert asyncio.all_tasks() == {asyncio.current_task()}, "a task is left behind"
    gc.collect()
    await turns()
    assert heard == []


pytestmark = pytest.mark.usefixtures("complaints")


@pytest.mark.parametrize("ends", ["read", "write"])
async def test_when_one_half_returns_the_stream_is_over_and_the_other_half_cancelled(
    ends: str,
) -> None:
    halves = {"read": Half(), "write": Half()}
    stream = asyncio.create_task(run_duplex(**{name: half.run() for name, half in halves.items()}))
    await turns()
    assert not stream.done()
    halves[ends].end.set_result(None)
    await asyncio.wait_for(stream, 5)
    assert halves.pop(ends).state == "returned"
    assert [half.state for half in halves.values()] == ["CancelledError"]


@pytest.mark.parametrize("fails", ["read", "write"])
async def test_the_error_of_a_half_is_the_stream_s_own_error(fails: str) -> None:
    halves = {"read": Half(), "write": Half()}
    error = InvalidMessageError("no message")
    halves[fails].end.set_exception(error)
    with pytest.raises(InvalidMessageError) as raised:
        await asyncio.wait_for(
            run_duplex(**{name: half.run() for name, half in halves.items()}, cut=asyncio.Event()),
            5,
        )
    assert raised.value is error


async def test_a_cut_ends_both_halves() -> None:
    read, write, cut = Half(), Half(), asyncio.Event()
    stream = asyncio.create_task(run_duplex(read=read.run(), write=write.run(), cut=cut))
    await turns()
    cut.set()
    await asyncio.wait_for(stream, 5)
    assert (read.state, write.state) == ("CancelledError", "CancelledError")


async def test_a_stream_that_was_cut_before_it_began_is_over() -> None:
    read, write, cut = Half(), Half(), asyncio.Event()
    cut.set()
    await asyncio.wait_for(run_duplex(read=read.run(), write=write.run(), cut=cut), 5)


async def test_where_both_halves_fail_at_once_the_reader_s_error_counts() -> None:
    read, write = Half(), Half()
    read.end.set_exception(InvalidMessageError("read"))
    write.end.set_exception(RuntimeError("write"))
    with pytest.raises(InvalidMessageError):
        await asyncio.wait_for(run_duplex(read=read.run(), write=write.run()), 5)


async def test_the_error_of_the_half_that_ended_first_counts() -> None:
    read, write = Half(), Half()
    read.error_of_clean_up = RuntimeError("read, later")
    write.end.set_exception(InvalidMessageError("write, first"))
    with pytest.raises(InvalidMessageError):
        await asyncio.wait_for(run_duplex(read=read.run(), write=write.run()), 5)


@pytest.mark.parametrize("ends", ["read", "cut"])
async def test_an_error_while_a_half_is_stopped_is_not_lost(ends: str) -> None:
    read, write, cut = Half(), Half(), asyncio.Event()
    write.error_of_clean_up = RuntimeError("could not be stopped well")
    stream = asyncio.create_task(run_duplex(read=read.run(), write=write.run(), cut=cut))
    await turns()
    if ends == "read":
        read.end.set_result(None)
    else:
        cut.set()
    with pytest.raises(RuntimeError, match="could not be stopped well"):
        await asyncio.wait_for(stream, 5)


async def test_the_stream_is_over_only_when_both_halves_are() -> None:
    read, write = Half(), Half()
    write.may_clean_up.clear()
    stream = asyncio.create_task(run_duplex(read=read.run(), write=write.run()))
    await turns()
    read.end.set_result(None)
    await turns()
    assert write.state == "cleans up"
    assert not stream.done()
    write.may_clean_up.set()
    await asyncio.wait_for(stream, 5)
    assert write.state == "CancelledError"


async def test_who_is_cancelled_takes_both_halves_along() -> None:
    read, write = Half(), Half()
    stream = asyncio.create_task(
        run_duplex(read=read.run(), write=write.run(), cut=asyncio.Event())
    )
    await turns()
    stream.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stream
    assert (read.state, write.state) == ("CancelledError", "CancelledError")


async def test_who_is_cancelled_twice_still_waits_for_both_halves() -> None:
    read, write = Half(), Half()
    read.may_clean_up.clear()
    stream = asyncio.create_task(run_duplex(read=read.run(), write=write.run()))
    await turns()
    stream.cancel()
    await turns()
    stream.cancel()
    await turns()
    assert not stream.done()
    read.may_clean_up.set()
    with pytest.raises(asyncio.CancelledError):
        await stream
    assert (read.state, write.state) == ("CancelledError", "CancelledError")


async def test_who_is_cancelled_while_a_failed_stream_ends_is_cancelled() -> None:
    read, write = Half(), Half()
    write.may_clean_up.clear()
    stream = asyncio.create_task(run_duplex(read=read.run(), write=write.run()))
    await turns()
    read.end.set_exception(InvalidMessageError("no message"))
    await turns()
    stream.cancel()
    await turns()
    write.may_clean_up.set()
    with pytest.raises(asyncio.CancelledError):
        await stream


async def test_who_is_cancelled_before_the_halves_began_starts_neither() -> None:
    read, write = Half(), Half()
    stream = asyncio.create_task(run_duplex(read=read.run(), write=write.run()))
    asyncio.get_running_loop().call_soon(stream.cancel)
    with pytest.raises(asyncio.CancelledError):
        await stream
    assert {read.state, write.state} <= {"new", "CancelledError"}


@pytest.mark.parametrize("leaks", ["read", "write"])
async def test_a_cancellation_that_leaks_from_a_half_is_no_good_end(leaks: str) -> None:
    halves = {"read": Half(), "write": Half()}
    halves[leaks].end.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run_duplex(**{name: half.run() for name, half in halves.items()})
