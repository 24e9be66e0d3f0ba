"""A session gateway with a probe of its event loop, for `ingest.py`.

It runs what `lingua serve gateway` runs. The process prints READY, and then answers commands from
stdin, each with one line of JSON. `address`: where it listens for gRPC and (`web`) for WebSockets.
`probe`: starts a task that sleeps 10 ms again and again. The time by which a sleep takes longer is
the delay of the event loop, including the wait for a core. `delays`: stops that task and returns
all delays.
"""

import asyncio
import json
import os
import sys
import time

from lingua_scheduler.cli.grpc_environment import prepare_grpc

prepare_grpc("serve")

# gRPC must not be loaded before.
from lingua_scheduler.cli import event_loop  # noqa: E402
from lingua_scheduler.services.runtime.settings.settings import load_settings  # noqa: E402
from lingua_scheduler.services.session_gateway.main import serve  # noqa: E402

SLEEP_S = 0.01


class LoopProbe:
    """Measures how late the event loop is."""

    def __init__(self) -> None:
        self._delays_ms: list[float] = []
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Starts to measure."""
        self._task = asyncio.create_task(self._run())

    def stop(self) -> list[float]:
        """Stops; returns the delays."""
        if self._task is not None:
            self._task.cancel()
        delays, self._delays_ms = self._delays_ms, []
        return delays

    async def _run(self) -> None:
        while True:
            began = time.monotonic()
            await asyncio.sleep(SLEEP_S)
            self._delays_ms.append(max(0.0, time.monotonic() - began - SLEEP_S) * 1000)


async def answer(**addresses: str) -> None:
    """Answers commands until stdin ends."""
    probe = LoopProbe()
    while word := (await asyncio.to_thread(sys.stdin.readline)).strip():
        told: dict[str, object] = {**addresses}
        if word == "probe":
            probe.start()
        elif word == "delays":
            told = {"delays_ms": probe.stop()}
        print(json.dumps(told), flush=True)


async def main() -> None:
    """Runs the gateway until SIGTERM."""
    # Kept, because the loop does not.
    tasks: list[asyncio.Task[None]] = []

    def ready(*told: str) -> None:
        # Other checkouts tell less: only address and metrics, or no address for the web.
        _, address, _, web = {2: ("", *told, ""), 3: (*told, "")}.get(len(told), told)
        tasks.append(asyncio.create_task(answer(address=address, web=web)))
        print("READY", flush=True)

    await serve(load_settings(), ready)
    # Without waiting for the thread that reads stdin.
    os._exit(0)


if __name__ == "__main__":
    event_loop.run(main())
