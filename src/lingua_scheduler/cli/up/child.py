"""A part of the scheduler in a child process that never outlives this one."""

import contextlib
import json
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

LOG_LINES_KEPT = 10


class Endpoint(NamedTuple):
    """Where a part listens; what it does not have is empty. A node has nothing."""

    address: str
    metrics: str
    web: str


class ChildProcess:
    """A command of `lingua` as a child process: `serve` or `sample-node`.

    It is started at once, loads its code, and serves when `begin` is called: so several processes
    load side by side, though each has to know where others are before it can serve.

    Its stdin is a pipe that ends when this process does, even by kill -9, and then the child drains
    and ends too. It has a session of its own, so that Ctrl-C in a terminal reaches only its parent.

    Args:
        command: of `lingua`, with its arguments.
        parts: what it announces when it is ready: services, or a node.
        environ: its complete environment.
        on_log: called from a thread with each line of its stderr.
        on_change: called from a thread when it is ready, and when it has ended.
    """

    def __init__(
        self,
        *,
        command: Sequence[str],
        parts: Sequence[str],
        environ: Mapping[str, str],
        on_log: Callable[[str], None],
        on_change: Callable[[], None],
    ) -> None:
        self.endpoints: dict[str, Endpoint] = {}
        """Where each of its parts listens; empty until all are ready."""
        self.exit_code: int | None = None
        """As in subprocess: negative for a signal. None while it runs."""
        self.last_log: deque[str] = deque(maxlen=LOG_LINES_KEPT)
        self._parts = parts
        self._on_log = on_log
        self._on_change = on_change
        # -P: files of the current folder must not shadow modules of the service.
        lingua = [sys.executable, "-P", "-m", "lingua_scheduler.cli"]
        self._process = subprocess.Popen(
            [*lingua, *command, "--announce", "--await-settings", "--until-eof"],
            env=dict(environ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
        self._announcement = threading.Thread(target=self._read_announcement, daemon=True)
        self._life = threading.Thread(target=self._follow, daemon=True)
        self._announcement.start()
        self._life.start()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def begin(self, settings: Mapping[str, str]) -> None:
        """Let it serve, with these variables added to its environment."""
        assert self._process.stdin is not None
        # If it has already ended, on_change reports that.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(dict(settings)) + "\n")
            self._process.stdin.flush()

    def terminate(self) -> None:
        """Let it drain and end. A second call would cut the drain short."""
        self._process.terminate()

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()

    def join(self, within_s: float | None = None) -> bool:
        """Wait for its end; False if it is still running."""
        self._life.join(within_s)
        return not self._life.is_alive()

    def how_it_ended(self) -> str:
        """Such as `exit code 1` or `killed by SIGKILL`."""
        code = self.exit_code or 0
        if code >= 0:
            return f"exit code {code}"
        try:
            return f"killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"killed by signal {-code}"

    def _read_announcement(self) -> None:
        assert self._process.stdout is not None
        announced: dict[str, Endpoint] = {}
        for line in self._process.stdout:
            told = json.loads(line)
            announced[told["service"]] = Endpoint(told["address"], told["metrics"], told["web"])
            if len(announced) == len(self._parts):
                self.endpoints = announced
                self._on_change()

    def _follow(self) -> None:
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        for line in process.stderr:
            self.last_log.append(line.rstrip("\n"))
            self._on_log(line.rstrip("\n"))
        code = process.wait()
        self._announcement.join()
        for pipe in (process.stdin, process.stdout, process.stderr):
            pipe.close()
        self.exit_code = code
        self._on_change()
