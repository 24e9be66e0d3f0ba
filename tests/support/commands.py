"""`lingua` and `lingua up` as processes."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from tests.support import process
from tests.support.process import CommandProcess

LINGUA = [sys.executable, "-m", "lingua_scheduler.cli"]
# A start takes two to three seconds; machines that run many tests at once are slower.
WITHIN_S = 60.0


def environment(**variables: str) -> dict[str, str]:
    """The environment of the tests without settings of its own, on free ports."""
    free = {
        f"LINGUA_{service}_{what}": "127.0.0.1:0"
        for service in ("POOL", "DISPATCHER", "GATEWAY")
        for what in ("LISTEN", "METRICS_LISTEN")
    }
    return {**process.environment(), **free, **variables}


def becomes(condition: Callable[[], bool]) -> bool:
    """Waits until a condition holds; False if it never does."""
    deadline = time.monotonic() + WITHIN_S
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def lingua(*args: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end, as a person does."""
    return subprocess.run(
        [*LINGUA, *args],
        env=environment(**variables),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
    )


class LinguaProcess(CommandProcess):
    """A command that runs until a test ends it."""

    def __init__(self, *args: str, **variables: str) -> None:
        super().__init__(args[0], [*LINGUA, *args], env=environment(**variables))


class Up(LinguaProcess):
    """A `lingua up --json`. Its children end with it."""

    def __init__(self, *args: str, **variables: str) -> None:
        super().__init__("up", "--json", *args, **variables)

    def ready(self) -> dict[str, Any]:
        """Waits until all services are ready; returns what the command prints then."""
        self.wait_for(lambda: self.output().endswith("\n}\n"), "ready", WITHIN_S)
        found: dict[str, Any] = json.loads(self.output())
        return found

    def end(self) -> int:
        """Waits for the end of the process; returns its exit code."""
        return self.wait_end(WITHIN_S)


Start = Callable[..., Up]
