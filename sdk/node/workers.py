"""Runs handlers in the event loop or in threads. For processes see `processes`."""

import asyncio
import contextlib
import contextvars
import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from typing import Any

from lingua_scheduler.sdk.node.handlers import Handler, Item, Kind, checked
from lingua_scheduler.sdk.node.job import CancelFlag, Job, job_from
from lingua_scheduler.sdk.results import Partial
from lingua_scheduler.v1.dispatcher_pb2 import JobAssign

# Receives a result or partial result; None means that the audio is held.
Say = Callable[[Item | None], None]


class Workers(ABC):
    """Runs handlers, with one call of `work` for each job."""

    # Whether the handler stops if the task that awaits `work` is cancelled.
    cancellable = False

    @abstractmethod
    async def work(self, assign: JobAssign, cancelled: CancelFlag, say: Say) -> None:
        """Runs the handler to its end and raises what it raises. Calls `say` in the event loop."""

    def flag(self) -> CancelFlag:
        """Returns a cancel flag for one call of `work`."""
        return CancelFlag()

    def close(self) -> None:  # noqa: B027 (not all have something to close)
        """Starts nothing more. Handlers that still run are abandoned, and do not delay the exit."""


class LoopWorkers(Workers):
    """Runs async handlers in the event loop."""

    cancellable = True

    def __init__(self, handler: Handler, kind: Kind) -> None:
        self._handler = handler
        self._kind = kind

    async def work(self, assign: JobAssign, cancelled: CancelFlag, say: Say) -> None:
        """See Workers."""
        job = job_from(assign, cancelled=cancelled, hold=lambda: say(None))
        if self._kind is Kind.COROUTINE:
            result = await self._handler(job)
            if result is not None:
                say(checked(result))
            return
        items = self._handler(job)
        try:
            async for item in items:
                say(checked(item))
                # A generator that never awaits would keep the writer from running.
                await asyncio.sleep(0)
        finally:
            await items.aclose()


class ThreadWorkers(Workers):
    """Runs blocking handlers in as many threads as there are slots.

    The threads are daemons, so a handler that hangs does not keep the process from exiting.
    """

    def __init__(self, handler: Handler, slots: int) -> None:
        self._handler = handler
        self._slots = slots
        self._threads: list[threading.Thread] = []
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()

    async def work(self, assign: JobAssign, cancelled: CancelFlag, say: Say) -> None:
        """See Workers."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        relay = _Relay(loop, say)
        job = job_from(assign, cancelled=cancelled, hold=lambda: relay.say(None))
        context = contextvars.copy_context()

        def run() -> None:
            error: BaseException | None = None
            try:
                context.run(run_blocking, self._handler, job, relay.say)
            except BaseException as raised:
                error = raised
            _post(loop, _settle, done, error)

        self._submit(run)
        await done

    def close(self) -> None:
        """See Workers."""
        for _ in self._threads:
            self._tasks.put(None)

    def _submit(self, run: Callable[[], None]) -> None:
        if len(self._threads) < self._slots:
            name = f"lingua-node-{len(self._threads)}"
            thread = threading.Thread(target=self._serve, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()
        self._tasks.put(run)

    def _serve(self) -> None:
        while (task := self._tasks.get()) is not None:
            task()


def run_blocking(handler: Handler, job: Job, say: Say) -> None:
    """Runs a blocking handler in this thread. A generator is closed once its job is cancelled."""
    given: Any = handler(job)
    if isinstance(given, Generator):
        for item in given:
            if job.cancelled:
                given.close()
                return
            say(checked(item))
    elif given is not None:
        say(checked(given))


class _Relay:
    """Passes items from a thread to the event loop. A partial result replaces a waiting one."""

    def __init__(self, loop: asyncio.AbstractEventLoop, say: Say) -> None:
        self._loop = loop
        self._say = say
        self._lock = threading.Lock()
        self._partial: Partial | None = None

    def say(self, item: Item | None) -> None:
        if not isinstance(item, Partial):
            _post(self._loop, self._say, item)
            return
        with self._lock:
            first, self._partial = self._partial is None, item
        if first:
            _post(self._loop, self._flush)

    def _flush(self) -> None:
        with self._lock:
            partial, self._partial = self._partial, None
        self._say(partial)


def _post(loop: asyncio.AbstractEventLoop, callback: Callable[..., object], *args: Any) -> None:
    # If the loop is closed, nobody is waiting any more.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(callback, *args)


def _settle(done: asyncio.Future[None], error: BaseException | None) -> None:
    if done.cancelled():
        return
    if error is None:
        done.set_result(None)
    else:
        # A future cannot carry StopIteration, and must not carry what would stop the loop.
        plain = isinstance(error, Exception) and not isinstance(error, StopIteration)
        done.set_exception(error if plain else RuntimeError(f"the handler raised {error!r}"))
