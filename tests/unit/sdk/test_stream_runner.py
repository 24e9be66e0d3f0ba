"""When a stream's timer is set, by a speaker that counts how often it is asked for a deadline."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import uvloop

from lingua_scheduler.sdk._transport.channels import Channels
from lingua_scheduler.sdk._transport.endings import Ending, Lost
from lingua_scheduler.sdk._transport.stream_runner import StreamRunner
from lingua_scheduler.sdk._transport.tokens import TokenSource


class Speaker:
    """Has what a test gives it to say, and the deadline that a test sets."""

    def __init__(self) -> None:
        self.to_say: list[str] = []
        self.deadline: float | None = None
        self.asked = 0
        self.on_heard: Callable[[], None] = lambda: None
        self.due = asyncio.Event()

    def take(self) -> str | None:
        return self.to_say.pop(0) if self.to_say else None

    def hear(self, message: str) -> None:
        self.on_heard()

    def ending(self) -> Ending:
        return Lost("the stream ended")

    def next_deadline(self) -> float | None:
        self.asked += 1
        return self.deadline

    def on_due(self) -> None:
        self.deadline = None
        self.due.set()


class Call:
    """A stream whose other end does what a test says."""

    def __init__(self) -> None:
        self.incoming: asyncio.Queue[Any] = asyncio.Queue()
        self.written: list[str] = []
        self.writing: Callable[[], Awaitable[object]] = lambda: asyncio.sleep(0)

    async def read(self) -> Any:
        return await self.incoming.get()

    async def write(self, message: str) -> None:
        await self.writing()
        self.written.append(message)

    def cancel(self) -> None:
        pass


class Running:
    """A stream that is open and idle."""

    def __init__(self) -> None:
        self.speaker, self.call = Speaker(), Call()
        self.channels = Channels()
        self.runner: StreamRunner[str, str] = StreamRunner(
            speaker=self.speaker,
            name="test",
            service="test",
            channels=self.channels,
            token=TokenSource(None),
        )

    async def __aenter__(self) -> "Running":
        lease = await self.channels.take("127.0.0.1:1")
        self.task = asyncio.create_task(self.runner.run(lease, lambda *_: self.call))
        await self.settle()
        self.speaker.asked = 0
        return self

    async def __aexit__(self, *_: object) -> None:
        self.call.incoming.put_nowait(grpc.aio.EOF)
        await self.task
        self.runner.stop_timer()
        await self.channels.close()

    async def settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    def soon(self) -> None:
        self.speaker.deadline = asyncio.get_running_loop().time() + 0.01
        self.runner.wake()


async def test_wake_ups_of_an_idle_writer_set_the_timer_once() -> None:
    async with Running() as one:
        for each in ("a", "b", "c"):
            one.speaker.to_say.append(each)
            one.runner.wake()
        await one.settle()
        await one.settle()

        assert one.call.written == ["a", "b", "c"]
        # Once for each message.
        assert one.speaker.asked == 3


async def test_a_deadline_is_kept_if_there_is_nothing_to_write() -> None:
    async with Running() as one:
        one.soon()

        async with asyncio.timeout(10):
            await one.speaker.due.wait()


async def test_a_deadline_is_kept_while_a_write_waits() -> None:
    async with Running() as one:
        blocked = asyncio.Event()
        one.call.writing = blocked.wait
        one.speaker.to_say.append("a")
        one.soon()
        async with asyncio.timeout(10):
            await one.speaker.due.wait()
        one.speaker.due.clear()
        one.soon()
        async with asyncio.timeout(10):
            await one.speaker.due.wait()

        assert one.call.written == []
        blocked.set()


async def test_a_deadline_is_kept_if_the_stream_ends_before_the_writer_runs() -> None:
    async with Running() as one:
        one.speaker.on_heard = one.soon
        one.call.incoming.put_nowait("message")
        one.call.incoming.put_nowait(grpc.aio.EOF)
        await one.task

        async with asyncio.timeout(10):
            await one.speaker.due.wait()


def test_a_timer_does_not_ring_again_and_again_because_uvloop_rounds_times() -> None:
    async def early_rings(count: int) -> int:
        early = left = 0
        done = asyncio.Event()
        async with Running() as one:
            loop = asyncio.get_running_loop()

            def on_due() -> None:
                nonlocal early, left
                assert one.speaker.deadline is not None
                if one.speaker.deadline > loop.time():
                    early += 1
                elif left < count:
                    left += 1
                    one.speaker.deadline = loop.time() + 0.002 + left / count / 1000
                else:
                    one.speaker.deadline = None
                    done.set()

            one.speaker.on_due = on_due  # type: ignore[method-assign]
            one.soon()
            async with asyncio.timeout(60):
                await done.wait()
        return early

    # Several for each timer if rounding is ignored. A few may be early on a busy machine, because
    # uvloop's clock stands still during an iteration of the loop.
    assert uvloop.run(early_rings(40)) < 20
