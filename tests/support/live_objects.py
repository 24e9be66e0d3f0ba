"""Services whose garbage collector is off, and that count their objects by type.

Without a collector an object goes when its last reference does. What is left of a call that is over
is then part of a reference cycle, or held by mistake.
"""

import asyncio
import collections
import json
import signal
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from tests.support.process import SOON_S
from tests.support.services import RUNNER, ServiceProcess

_COUNTING = """
import collections, gc, signal

def tell_objects(*_):
    kinds = (f"{type(each).__module__}.{type(each).__qualname__}" for each in gc.get_objects())
    path = os.environ["TEST_OBJECTS"]
    with open(path + ".part", "w") as file:
        json.dump(collections.Counter(kinds), file)
    os.rename(path + ".part", path)

signal.signal(signal.SIGUSR2, tell_objects)

def ready(service, address, metrics, web):
    gc.disable()
"""
# Of what a call leaves behind, that which keeps all the rest of it. (gRPC makes one small cycle of
# its own for each call, when it looks for the method; the youngest generation gets those.)
_TELLING = (
    "lingua_scheduler.",
    "grpc._cython.cygrpc.RPCState",
    "aiohttp.",
    "_asyncio.",
    "asyncio.",
    "builtins.frame",
    "builtins.traceback",
    "builtins.coroutine",
)
# Each of asyncio's own transports refers to itself. Services use uvloop.
_OWN_CYCLES = {"asyncio.selector_events._SelectorSocketTransport", "asyncio.trsock.TransportSocket"}

Process = TypeVar("Process", bound=ServiceProcess)


@contextmanager
def counting(kind: type[Process], **options: Any) -> Iterator["CountedProcess"]:
    """A service of this kind that runs without a garbage collector inside the block."""
    runner = RUNNER.replace("\ndef ready(service, address, metrics, web):\n", _COUNTING)
    assert runner != RUNNER
    with tempfile.TemporaryDirectory(prefix="lingua-objects-") as folder:
        path = Path(folder) / "objects"
        # Calls that are abandoned at once count until the service has let go of them.
        options = {"max_streams_per_connection": 10_000, **options}
        environ = {"TEST_OBJECTS": str(path)}
        with kind(**options, runner=runner, environ=environ) as process:
            yield CountedProcess(process, path)


class CountedProcess:
    """A running service, and the objects that it has in memory."""

    def __init__(self, process: ServiceProcess, path: Path) -> None:
        self.service = process
        self._path = path

    async def objects(self) -> collections.Counter[str]:
        """The number of objects of each type."""
        self._path.unlink(missing_ok=True)
        self.service.process.send_signal(signal.SIGUSR2)
        deadline = time.monotonic() + SOON_S
        while not self._path.exists():
            assert time.monotonic() < deadline, self.service.log()
            await asyncio.sleep(0.01)
        return collections.Counter(json.loads(self._path.read_text()))

    async def keeps_nothing_of(
        self, times: int, once: Callable[[], Awaitable[None]], *, at_once: int = 50
    ) -> None:
        """Does something many times; fails if the service keeps objects of it."""

        async def do(times: int) -> None:
            for _ in range(0, times, at_once):
                await asyncio.gather(*(once() for _ in range(at_once)))

        await do(2 * at_once)
        before = await self._settled({}, at_once)
        await do(times)
        await self._settled(before, times // 10)

    async def _settled(self, before: dict[str, int], most: int) -> dict[str, int]:
        """Waits until no telling type has grown by more than `most`; returns the counts."""
        # What ends a stream may still wait for a time-out of some seconds.
        deadline = time.monotonic() + 3 * SOON_S
        while True:
            objects = await self.objects()
            telling = {
                kind: n
                for kind, n in objects.items()
                if kind.startswith(_TELLING) and kind not in _OWN_CYCLES
            }
            grown = {kind: n - before.get(kind, 0) for kind, n in telling.items()}
            grown = {kind: n for kind, n in grown.items() if n > most}
            if not before or not grown:
                return telling
            assert time.monotonic() < deadline, f"left behind: {grown}"
            await asyncio.sleep(0.2)
