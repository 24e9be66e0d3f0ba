"""The parent process of an embedded Redis server, so that the server never outlives its owner.

It is run by path with `python -I -S` and uses only the standard library, so that it starts in
milliseconds. The owner talks to it in JSON lines:

    stdin   {"op": "spawn", "argv": [...], "log": path}    start the server
            {"op": "signal", "number": 9}                  signal the server
            end of file                                    the owner stopped or died: clean up
    stdout  {"event": "folder", "path": path}              first line: a private temporary folder
            {"event": "spawned", "pid": 123}
            {"event": "failed", "error": "..."}            the server could not be started at all
            {"event": "signalled"}                         the signal has been delivered
            {"event": "exit", "status": 0}                 the server ended (negative: by a signal)

To clean up, it sends SIGTERM to the server, SIGKILL after a grace period, removes the folder, and
exits.
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
# Normally, end of file on stdin tells that the owner is gone. A child that the owner forked without
# exec keeps that pipe open, so the parent's pid is checked as well, at this interval.
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
        """Serves the owner until it is gone, then cleans up."""
        self._watch_signals()
        try:
            self._report({"event": "folder", "path": self._folder})
            self._serve()
        finally:
            self._end_server()
            shutil.rmtree(self._folder, ignore_errors=True)

    def _watch_signals(self) -> None:
        # The owner handles Ctrl-C, even if this process is in the terminal's process group.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._on_end)
        # Without a handler, the signal would not be written to the wake-up pipe.
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
            # Wait until it has stopped, so that it answers nothing after the report.
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
        # A suspended server does not handle SIGTERM.
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
        # If the owner is dead, end of file on stdin tells.
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
    """Makes the server's process end if the guard is killed; runs before exec."""
    if not sys.platform.startswith("linux"):
        return None
    # Looked up before the fork, because the child should do as little as possible.
    prctl = ctypes.CDLL(None).prctl
    guard = os.getpid()

    def prepare() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != guard:
            os._exit(1)

    return prepare


if __name__ == "__main__":
    # The server writes sessions and results to disk, which no other user may read.
    os.umask(0o077)
    Guard().run()
