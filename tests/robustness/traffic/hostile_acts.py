"""What hostile peers have in common: acts in an order drawn from a seed, at a bounded rate.

Records, one JSON object a line: `act` (its name, what came of it, how long it took), `cycle` (all
acts have had their turn), `broke` (an act failed by a bug of its own, with a traceback).
"""

import asyncio
import json
import os
import random
import signal
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import grpc

# An act that gets no answer is given up, so that the others have their turn.
ACT_S = 8.0
# Between two acts: about five a second and program.
PAUSE_S = (0.05, 0.35)
# A program ends by itself, whatever becomes of the process that started it.
LONGEST_S = 180.0

Act = Callable[[], Awaitable[str | None]]

# How a service, or its absence, ends what a hostile peer begins. The raw peers of the tests raise
# AssertionError if something does not come.
REFUSED = (grpc.aio.AioRpcError, TimeoutError, OSError, AssertionError, asyncio.InvalidStateError)


class Records:
    """Where a hostile peer writes down what it does."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", buffering=1)

    def note(self, what: str, **more: Any) -> None:
        """One record."""
        self._file.write(json.dumps({"t": time.monotonic(), "what": what, **more}) + "\n")


async def attempt(name: str, act: Act, records: Records) -> None:
    """Runs one act and writes down what came of it."""
    began = time.monotonic()
    try:
        async with asyncio.timeout(ACT_S):
            how = await act() or "done"
    except REFUSED as error:
        how = _short(error)
    except Exception:
        records.note("broke", name=name, traceback=traceback.format_exc())
        return
    records.note("act", name=name, how=how, took=time.monotonic() - began)


async def run_acts(acts: Mapping[str, Act], rng: random.Random, records: Records) -> None:
    """Runs all acts again and again, in a new order each time, until it is cancelled."""
    while True:
        for name in rng.sample(sorted(acts), len(acts)):
            await attempt(name, acts[name], records)
            await asyncio.sleep(rng.uniform(*PAUSE_S))
        records.note("cycle")


def run_program(main: Callable[[random.Random, Records], Awaitable[None]]) -> None:
    """Runs a hostile peer as the environment says, until SIGTERM or LONGEST_S are over."""
    # Honest processes go first: what is tested is the scheduler, not the machine.
    os.nice(5)
    rng = random.Random(int(os.environ["HOSTILE_SEED"]))
    records = Records(Path(os.environ["HOSTILE_RECORDS"]))

    async def until_told() -> None:
        working = asyncio.ensure_future(main(rng, records))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, working.cancel)
        await asyncio.wait([working], timeout=LONGEST_S)
        working.cancel()
        (ended,) = await asyncio.gather(working, return_exceptions=True)
        if not isinstance(ended, asyncio.CancelledError):
            told = "".join(traceback.format_exception(ended)) if ended else "ended by itself"
            records.note("broke", name="program", traceback=told)

    asyncio.run(until_told())


def _short(error: BaseException) -> str:
    if isinstance(error, grpc.aio.AioRpcError):
        return str(error.code().name)
    return type(error).__name__
