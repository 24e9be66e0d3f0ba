"""The parent process of an embedded Redis server, so that the server never outlives its owner.

Run by path with `python -I -S`, standard library only: it must start in milliseconds and depend
on nothing. The owner talks to it in JSON lines:

    stdin   {"op": "spawn", "argv": [...], "log": path}    start the server
            {"op": "signal", "number": 9}                  signal the server
            end of file                                    the owner stopped or died: clean up
    stdout  {"event": "folder", "path": path}              first line: a private temporary folder
            {"event": "spawned", "pid": 123}
            {"event": "failed", "error": "..."}            the server could not be started at all
            {"event": "signalled"}                         the signal has been delivered
            {"event": "exit", "status": 0}                 the server ended (negative: by a signal)

Cleaning up is: SIGTERM to the server, SIGKILL after a grace, remove the folder, exit.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

# A server with a large append-only file needs a moment for its last fsync.
STOP_GRACE_S = 3.0
# End of file on stdin is the normal sign that the owner is gone. A child that the owner forked
# without exec keeps that pipe open, so the parent's pid is looked at as well, this often.
OWNER_CHECK_S = 1.0
PR_SET_PDEATHSIG = 1
# The path of a socket has 103 bytes at most on macOS, and 107 on Linux.
MAX_FOLDER_BYTES = 90


class Guard:
    """Holds one server at a time and ends it with its owner."""

    def __init__(self) -> None:
        self._owner = os.getppid()
        self._server: subprocess.Popen[bytes] | None = None
        self._folder = _private_folder()
        self._wake, self._waker = os.pipe()
        self._ended = False

    def run(self) -> None:
        """Serve the owner until it is gone, then leave nothing behind."""
        self._watch_signals()
        try:
            self._report({"event": "folder", "path": self._folder})
            self._serve()
        finally:
            self._end_server()
            shutil.rmtree(self._folder, ignore_errors=True)

    def _watch_signals(self) -> None:
        # Ctrl-C in a terminal is the owner's to handle, even if someone joins us to its group.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._on_end)
        # A handler of our own, or the wake-up pipe would not hear of it.
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        os.set_blocking(self._waker, False)
        os.set_blocking(self._wake, False)
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)

    def _on_end(self, _number: int, _frame: FrameType | None) -> None:
        self._ended = True

    def _serve(self) -> None:
        stdin = sys.stdin.fileno()
        unread = b""
        while not self._ended and os.getppid() == self._owner:
            readable, _, _ = select.select([stdin, self._wake], [], [], OWNER_CHECK_S)
            if self._wake in readable:
                os.read(self._wake, 4096)
            self._reap()
            if stdin not in readable:
                continue
            chunk = os.read(stdin, 65536)
            if not chunk:
                return
            *lines, unread = (unread + chunk).split(b"\n")
            for line in lines:
                self._obey(json.loads(line))

    def _obey(self, order: dict[str, Any]) -> None:
        if order["op"] == "spawn":
            self._spawn(order["argv"], order["log"])
        else:
            self._signal(order["number"])
            self._report({"event": "signalled"})

    def _signal(self, number: int) -> None:
        if self._server is None:
            return
        self._server.send_signal(number)
        if number == signal.SIGSTOP and hasattr(os, "waitid"):
            # It may answer a little more before it stops; nobody is to count on either.
            os.waitid(os.P_PID, self._server.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def _spawn(self, argv: list[str], log_path: str) -> None:
        try:
            with open(log_path, "ab") as log:
                self._server = subprocess.Popen(
                    argv,
                    cwd=self._folder,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    preexec_fn=_die_with_parent(),
                )
        except (OSError, subprocess.SubprocessError) as error:
            self._report({"event": "failed", "error": str(error)})
        else:
            self._report({"event": "spawned", "pid": self._server.pid})

    def _reap(self) -> None:
        if self._server is not None and (status := self._server.poll()) is not None:
            self._server = None
            self._report({"event": "exit", "status": status})

    def _end_server(self) -> None:
        server = self._server
        if server is None:
            return
        server.terminate()
        # A server that a test has paused cannot hear SIGTERM.
        server.send_signal(signal.SIGCONT)
        deadline = time.monotonic() + STOP_GRACE_S
        while server.poll() is None and time.monotonic() < deadline:
            select.select([self._wake], [], [], 0.05)
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake, 4096)
        if server.poll() is None:
            server.kill()
            server.wait()

    def _report(self, event: dict[str, Any]) -> None:
        # A dead owner is noticed by its end of file, not here.
        with contextlib.suppress(OSError):
            os.write(sys.stdout.fileno(), json.dumps(event).encode() + b"\n")


def _private_folder() -> str:
    """A new folder that only this user can enter, with a path short enough for a socket in it."""
    folder = tempfile.mkdtemp(prefix="lingua-redis-")
    if len(os.fsencode(folder)) <= MAX_FOLDER_BYTES:
        return folder
    os.rmdir(folder)
    return tempfile.mkdtemp(prefix="lingua-redis-", dir="/tmp")


def _die_with_parent() -> Callable[[], None] | None:
    """What the server's process does before exec, so that it cannot outlive a killed guard."""
    if not sys.platform.startswith("linux"):
        return None
    # Looked up before the fork: the child of a fork should do as little as it can.
    prctl = ctypes.CDLL(None).prctl
    guard = os.getpid()

    def prepare() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != guard:
            os._exit(1)

    return prepare


if __name__ == "__main__":
    # What the server writes holds sessions and results: it is for nobody else to read.
    os.umask(0o077)
    Guard().run()
