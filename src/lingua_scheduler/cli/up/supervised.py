"""A process that is restarted at the same addresses when it dies."""

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from lingua_scheduler.cli.up.child import ChildProcess, Endpoint
from lingua_scheduler.services.runtime.settings.settings import variable_name

# The first restart follows after FIRST_S, each next one after twice that, up to LONGEST_S.
FIRST_S = 0.2
LONGEST_S = 5.0
# A process that ran this long was healthy: its end counts as the first.
STEADY_S = 10.0
# After this many ends in a row, the process cannot stay up.
MAX_ENDS = 5


class Restarts:
    """When to restart a process that has ended. No I/O, no clock."""

    def __init__(self) -> None:
        self._ends = 0

    def after_end(self, ran_s: float) -> float | None:
        """Time to wait before the next start; None if it cannot stay up.

        Args:
            ran_s: how long the process ran.
        """
        if ran_s >= STEADY_S:
            self._ends = 0
        self._ends += 1
        if self._ends >= MAX_ENDS:
            return None
        return float(min(LONGEST_S, FIRST_S * 2 ** (self._ends - 1)))


class SupervisedProcess:
    """A process of services or of a node, and those that replace it.

    The first is started at once, and serves when `begin` is called.

    Args:
        command: of `lingua`, with its arguments.
        parts: what it runs: services, or a node.
        name: its name in messages.
        environ: its complete environment.
        on_log: called from threads with each line that it logs.
        on_note: called with each note about a restart.
        on_change: called from a thread when it is ready, and when its process has ended.
    """

    def __init__(
        self,
        *,
        command: Sequence[str],
        parts: Sequence[str],
        name: str,
        environ: Mapping[str, str],
        on_log: Callable[[str], None],
        on_note: Callable[[str], None],
        on_change: Callable[[], None],
    ) -> None:
        self.name = name
        self.endpoints: dict[str, Endpoint] = {}
        """Where each part listens; empty until all were ready for the first time."""
        self.gave_up = False
        """Whether it ended before it was ever ready, or cannot stay up."""
        self.restart_at: float | None = None
        """When to start its next process, by `time.monotonic`."""
        self._command = command
        self._parts = parts
        self._environ = dict(environ)
        self._on_log = on_log
        self._on_note = on_note
        self._on_change = on_change
        self._restarts = Restarts()
        self._is_back = True
        self._process = self._start()

    def begin(self, settings: Mapping[str, str]) -> None:
        """Let it serve, with these variables added to its environment."""
        self._environ.update(settings)
        self._process.begin(settings)

    @property
    def pid(self) -> int:
        """Process id of its current or last process."""
        return self._process.pid

    @property
    def last_log(self) -> deque[str]:
        """The last log lines of its current or last process."""
        return self._process.last_log

    @property
    def runs(self) -> bool:
        """Whether its process is running."""
        return self._process.exit_code is None

    @property
    def exit_code(self) -> int | None:
        """Exit code of its last process; None while one is running."""
        return self._process.exit_code

    def how_it_ended(self) -> str:
        """How its last process ended, as text."""
        return self._process.how_it_ended()

    def terminate(self) -> None:
        """Let it drain and end."""
        self._process.terminate()

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()

    def join(self, within_s: float | None = None) -> bool:
        """Wait for its end; False if it is still running."""
        return self._process.join(within_s)

    def check(self, now: float) -> None:
        """Check its process, and start another one if it is time."""
        if self._process.endpoints and not self._is_back:
            self._is_back = True
            where = ", ".join(each.address for each in self._process.endpoints.values())
            self._on_note(f"is back{' at ' if where else ''}{where} (pid {self.pid})")
        if not self.endpoints and self._process.endpoints:
            self._keep_addresses()
        if self.runs or self.gave_up:
            return
        if self.restart_at is None:
            self._on_end(now)
        elif now >= self.restart_at:
            self.restart_at = None
            self._is_back = False
            self._process = self._start()
            self._process.begin({})

    def _on_end(self, now: float) -> None:
        wait = self._restarts.after_end(now - self._started_at) if self.endpoints else None
        if wait is None:
            self.gave_up = True
            return
        self.restart_at = now + wait
        words = f"pid {self.pid} ended unexpectedly: {self.how_it_ended()}"
        self._on_note(f"{words}; restarting it in {wait:g} s")

    def _keep_addresses(self) -> None:
        """Let the next process listen on the same addresses, so that peers and clients find it."""
        self.endpoints = self._process.endpoints
        for service, (address, metrics, web) in self.endpoints.items():
            if address:
                self._environ[variable_name(f"{service}_listen")] = address
            if metrics:
                self._environ[variable_name(f"{service}_metrics_listen")] = metrics
            if web:
                self._environ[variable_name(f"{service}_web_listen")] = web

    def _start(self) -> ChildProcess:
        self._started_at = time.monotonic()
        return ChildProcess(
            command=self._command,
            parts=self._parts,
            environ=self._environ,
            on_log=self._on_log,
            on_change=self._on_change,
        )
