"""`lingua` and `lingua up` as processes, for the tests of this folder."""

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

LINGUA = [sys.executable, "-m", "lingua_scheduler.cli"]
# A start takes two to three seconds; machines that run many tests at once are slower.
WITHIN_S = 60.0


def environment(**settings: str) -> dict[str, str]:
    """That of the tests, without their settings, on free ports."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LINGUA_")}
    free = {
        f"LINGUA_{service}_{what}": "127.0.0.1:0"
        for service in ("POOL", "DISPATCHER", "GATEWAY")
        for what in ("LISTEN", "METRICS_LISTEN")
    }
    return {**kept, **free, **settings}


def becomes(condition: Callable[[], bool]) -> bool:
    """Waits until it holds; False where it never does."""
    deadline = time.monotonic() + WITHIN_S
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def lingua(*args: str, **settings: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*LINGUA, *args],
        env=environment(**settings),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
    )


class Up:
    """A `lingua up --json` that runs."""

    def __init__(self, *args: str, **settings: str) -> None:
        self.process = subprocess.Popen(
            [*LINGUA, "up", "--json", *args],
            env=environment(**settings),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.log = ""
        self._documents: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._readers = [
            threading.Thread(target=self._read_stdout, daemon=True),
            threading.Thread(target=self._read_stderr, daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def ready(self) -> dict[str, Any]:
        """What it says of itself when all is up."""
        found: dict[str, Any] = json.loads(self._documents.get(timeout=WITHIN_S))
        return found

    def end(self) -> int:
        """Waits for its end; its exit code."""
        code = self.process.wait(WITHIN_S)
        for reader in self._readers:
            reader.join(WITHIN_S)
        return code

    def _read_stdout(self) -> None:
        assert self.process.stdout is not None
        document = ""
        for line in self.process.stdout:
            document += line
            if line == "}\n":
                self._documents.put(document)

    def _read_stderr(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log += line

    def close(self) -> None:
        """Kills it, where it still runs; its children go by themselves."""
        self.process.kill()
        self.end()
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()


Start = Callable[..., Up]
