"""Runs blocking handlers in processes of their own, so that the GIL does not slow them down.

Children are spawned, never forked, because gRPC has threads. So each child imports the handler's
module, and a script needs `if __name__ == "__main__":`. A job travels as its message. Results are
returned by the call; partial results and holds travel through one pipe, which one thread reads.
"""

import asyncio
import contextlib
import multiprocessing.context
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import Connection, wait
from typing import Any

from lingua_scheduler.sdk.errors import JobError
from lingua_scheduler.sdk.node.handlers import Handler, Item
from lingua_scheduler.sdk.node.job import CancelFlag, job_from
from lingua_scheduler.sdk.node.workers import Say, Workers, run_blocking
from lingua_scheduler.sdk.results import Held, Partial
from lingua_scheduler.v1.dispatcher_pb2 import JobAssign

# How often a child that waits for its cancel flag polls it.
_LOOK_S = 0.05


class ProcessWorkers(Workers):
    """One process for each slot. If one dies, all their jobs fail and all are replaced."""

    def __init__(self, handler: Handler, slots: int) -> None:
        self._handler = handler
        self._slots = slots
        self._pool: _Pool | None = None

    def flag(self) -> CancelFlag:
        """See Workers."""
        return _SharedFlag()

    async def work(self, assign: JobAssign, cancelled: CancelFlag, say: Say) -> None:
        """See Workers."""
        if self._pool is None:
            self._pool = _Pool(self._slots)
        pool = self._pool
        assert isinstance(cancelled, _SharedFlag)
        try:
            with pool.place(say, cancelled) as place:
                data = assign.SerializeToString()
                call = pool.executor.submit(_in_child, self._handler, data, *place)
                held, result = await asyncio.wrap_future(call)
        except BrokenProcessPool as error:
            if self._pool is pool:
                self._pool = None
                pool.close()
            raise JobError("WORKER_DIED", "a worker process died") from error
        if held:
            say(None)
        if result is not None:
            say(result)

    def close(self) -> None:
        """See Workers. A process cannot be left behind as a thread can, so busy ones are killed."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None


class _SharedFlag(CancelFlag):
    """A flag that the child sees as well, while its job has a slot."""

    def __init__(self) -> None:
        super().__init__()
        self._bytes: Any = None
        self._slot = 0

    def bind(self, shared: Any, slot: int) -> None:
        self._bytes, self._slot = shared, slot
        shared[slot] = self.is_set()

    def unbind(self) -> None:
        self._bytes = None

    def set(self) -> None:
        super().set()
        if self._bytes is not None:
            self._bytes[self._slot] = 1


class _SpawnContext(multiprocessing.context.SpawnContext):
    """Remembers the processes that an executor starts with it.

    Before Python 3.14, an executor has no public way to kill a busy process.
    """

    def __init__(self) -> None:
        self.children: list[multiprocessing.context.SpawnProcess] = []

    def Process(self, *args: Any, **kwargs: Any) -> multiprocessing.context.SpawnProcess:  # type: ignore[override] # noqa: N802
        child = multiprocessing.context.SpawnProcess(*args, **kwargs)
        self.children.append(child)
        return child

    def kill(self) -> None:
        for child in self.children:
            # A child that could not be started has no id.
            if child.pid is not None:
                child.kill()


class _Pool:
    """The processes, and what they share with this one."""

    def __init__(self, slots: int) -> None:
        self._context = context = _SpawnContext()
        self._loop = asyncio.get_running_loop()
        # For each slot: whether its job is cancelled.
        self._cancelled = context.RawArray("b", slots)
        self._free = list(range(slots))
        # By a number for each job, because slots are reused.
        self._says: dict[int, Say] = {}
        self._last = 0
        self._pipe, self._writer = context.Pipe(duplex=False)
        self._stopped, self._stop = context.Pipe(duplex=False)
        setup = (self._writer, context.Lock(), self._cancelled)
        self.executor = ProcessPoolExecutor(slots, context, _start_child, setup)
        threading.Thread(target=self._read, name="lingua-node-pipe", daemon=True).start()

    @contextlib.contextmanager
    def place(self, say: Say, cancelled: _SharedFlag) -> Iterator[tuple[int, int]]:
        """Yields a slot for one job, and the number with which the child tags what it says."""
        slot = self._free.pop()
        self._last += 1
        number = self._last
        self._says[number] = say
        cancelled.bind(self._cancelled, slot)
        try:
            yield slot, number
        finally:
            cancelled.unbind()
            del self._says[number]
            self._free.append(slot)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._stop.send(None)
        self.executor.shutdown(wait=False, cancel_futures=True)
        self._context.kill()

    def _read(self) -> None:
        """Passes what the pipe delivers to the event loop. Runs in a thread."""
        with contextlib.suppress(EOFError, OSError, RuntimeError):
            while self._stopped not in wait([self._pipe, self._stopped]):
                number, item = self._pipe.recv()
                self._loop.call_soon_threadsafe(self._say, number, item)

    def _say(self, number: int, item: Item | None) -> None:
        if (say := self._says.get(number)) is not None:
            say(item)


# ---- in the child ----


class _Child:
    """What a child process shares with its parent."""

    pipe: Connection
    lock: Any
    cancelled: Any


def _start_child(pipe: Connection, lock: Any, cancelled: Any) -> None:
    # Ctrl-C signals the whole process group, but the parent decides when to stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _Child.pipe, _Child.lock, _Child.cancelled = pipe, lock, cancelled


class _ChildFlag(CancelFlag):
    def __init__(self, slot: int) -> None:
        super().__init__()
        self._slot = slot

    def is_set(self) -> bool:
        return bool(_Child.cancelled[self._slot])

    def wait(self, timeout: float | None = None) -> bool:
        end = None if timeout is None else time.monotonic() + timeout
        while not self.is_set() and (end is None or time.monotonic() < end):
            time.sleep(_LOOK_S)
        return self.is_set()


def _in_child(handler: Handler, assign: bytes, slot: int, number: int) -> tuple[bool, Item | None]:
    """Runs the handler. Returns whether the audio is held, and the first result."""
    held = False
    result: Item | None = None

    def say(item: Item | None) -> None:
        nonlocal held, result
        if isinstance(item, Partial) or item is None:
            held = held or item is None
            with _Child.lock:
                _Child.pipe.send((number, item))
        elif result is None:
            result = item
            # The call returns it; only a hold has to be reported at once.
            if isinstance(item, Held):
                say(None)

    job = job_from(JobAssign.FromString(assign), cancelled=_ChildFlag(slot), hold=lambda: say(None))
    run_blocking(handler, job, say)
    return held, result
