"""Processes that are forked from one that has imported everything.

Imports are most of what a short-lived service costs, and the tests start hundreds. A forked process
is as real as any: it has its own pid, environment and files, can be stopped and killed, and nothing
but modules in common with its parent. One nursery serves all tests of a pytest process; when that
ends, however it does, the nursery and its children end too.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]


class ForkedProcess:
    """A forked process, with the part of the interface of `subprocess.Popen` that tests use."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._ended = threading.Event()

    def poll(self) -> int | None:
        """The exit code, negative for a signal, or None while it runs."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Waits for its end.

        Raises:
            subprocess.TimeoutExpired: it still runs.
        """
        if not self._ended.wait(timeout):
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Sends a signal; does nothing if the process has ended."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Sends SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def has_ended(self, returncode: int) -> None:
        """Records the end of the process."""
        self.returncode = returncode
        self._ended.set()


class Nursery:
    """A client of the process that forks others.

    Args:
        python: the interpreter of all of them.
        tree: the folder whose `tests` they use.
    """

    def __init__(self, python: str = sys.executable, tree: Path = ROOT) -> None:
        self._process = subprocess.Popen(
            [python, "-m", "tests.support.nursery"],
            cwd=tree,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._lock = threading.Lock()
        self._born: list[ForkedProcess] = []
        self._came = threading.Semaphore(0)
        self._children: dict[int, ForkedProcess] = {}
        threading.Thread(target=self._read, daemon=True).start()

    def fork(self, code: str, *, env: Mapping[str, str], out: Path, err: Path) -> ForkedProcess:
        """Runs code in a new process; `out` is truncated first, `err` is appended to."""
        order = {"code": code, "env": dict(env), "out": str(out), "err": str(err)}
        with self._lock:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
            self._came.acquire()
            return self._born.pop()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            pid, _, code = line.strip().partition(" ")
            if code:
                self._children.pop(int(pid)).has_ended(int(code))
            else:
                child = self._children[int(pid)] = ForkedProcess(int(pid))
                self._born.append(child)
                self._came.release()


@cache
def nursery() -> Nursery:
    """The nursery of this process."""
    return Nursery()


def _serve() -> None:
    """Forks a process for each line on stdin; prints `pid` at its start, `pid code` at its end."""
    import selectors

    import lingua_scheduler.services.dispatcher.main
    import lingua_scheduler.services.pool_service.main
    import lingua_scheduler.services.session_gateway.main  # noqa: F401

    # Ctrl-C is for pytest, whose end ends this.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    living: set[int] = set()
    unread = b""
    with selectors.DefaultSelector() as selector:
        selector.register(0, selectors.EVENT_READ)
        selector.register(woken, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fd == woken:
                    os.read(woken, 4096)
                    _bury(living)
                    continue
                if not (data := os.read(0, 65536)):
                    for pid in living:
                        os.kill(pid, signal.SIGKILL)
                    return
                *lines, unread = (unread + data).split(b"\n")
                for line in lines:
                    living.add(pid := _fork(json.loads(line), (woken, wake)))
                    print(pid, flush=True)


def _bury(living: set[int]) -> None:
    for pid in list(living):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            living.discard(pid)
            print(pid, os.waitstatus_to_exitcode(status), flush=True)


def _fork(order: dict[str, str], not_for_it: tuple[int, int]) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGINT, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for descriptor in not_for_it:
            os.close(descriptor)
        flags = os.O_WRONLY | os.O_CREAT
        for descriptor, target in (
            (0, os.open(os.devnull, os.O_RDONLY)),
            (1, os.open(order["out"], flags | os.O_TRUNC, 0o600)),
            (2, os.open(order["err"], flags | os.O_APPEND, 0o600)),
        ):
            os.dup2(target, descriptor)
            os.close(target)
        os.environ.clear()
        os.environ.update(order["env"])  # type: ignore[arg-type]
        if "coverage" in sys.modules:
            threading.Thread(target=_save_coverage, daemon=True).start()
        exec(compile(order["code"], "<service>", "exec"), {"__name__": "__main__"})
        code = 0
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        # Threads that should have ended, as at the end of any process.
        threading._shutdown()  # type: ignore[attr-defined]
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _save_coverage() -> None:
    """Saves the coverage once a second, because most tests end their services by SIGKILL."""
    from coverage import Coverage

    while (measuring := Coverage.current()) is not None:
        time.sleep(1)
        measuring.save()


if __name__ == "__main__":
    _serve()
