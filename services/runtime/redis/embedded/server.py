"""A real Redis server that belongs to this process: for `lingua up`, examples and tests."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from lingua_scheduler.services.runtime.redis.embedded.binary import (
    EmbeddedRedisError,
    ServerBinary,
    find_server,
)

HOST = "127.0.0.1"

# An empty server is ready in about 40 ms; one with data reads its append-only file first.
START_DEADLINE_S = 10.0
RECOVERY_DEADLINE_S = 60.0
# The guard gives the server 3 s to end; after this long the guard itself is stuck.
STOP_DEADLINE_S = 6.0
# Another process may take the free port before the server binds it.
PORT_ATTEMPTS = 8
POLL_S = 0.005
LOG_LINES_SHOWN = 15

GUARD = Path(__file__).with_name("guard.py")


class _ServerExitedError(EmbeddedRedisError):
    """The server ended before it was ready, most often because its port was taken."""


class EmbeddedRedis:
    """A Redis server on the loopback interface that ends when its owner does, even by kill -9.

    It never evicts keys, and no other user can read its files. Use it as a context manager, or call
    `start` and `stop`, also repeatedly.

    Args:
        data_dir: a folder for an append-only file that is synced every second; created if missing.
            None: nothing is persisted.
        unix_socket: listen on a socket that only this user can open, and on no port. Otherwise
        every
            user of this machine can connect; that is for tests, which put proxies in between.
        args: further arguments of the server, such as `("--maxmemory", "2mb")`.
        binary: the server to start; None for that of `find_server`.
    """

    def __init__(
        self,
        *,
        data_dir: Path | None = None,
        unix_socket: bool = False,
        args: Sequence[str] = (),
        binary: ServerBinary | None = None,
    ) -> None:
        self.url = ""
        self.port = 0
        self.pid = 0
        self._data_dir = data_dir
        self._unix_socket = unix_socket
        self._args = tuple(args)
        self._binary = binary
        self._folder: Path | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._unread = b""
        self._events: deque[dict[str, Any]] = deque()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Starts the server; returns when it is ready.

        Raises:
            EmbeddedRedisError: with the end of the server's log.
        """
        if self._guard is not None:
            raise EmbeddedRedisError("this embedded Redis is already started")
        if self._binary is None:
            self._binary = find_server()
        with ExitStack() as stack:
            # The guard inherits the lock, and so it lasts exactly as long as the server.
            locks = [stack.enter_context(_locked(self._data_dir))] if self._data_dir else []
            self._guard = subprocess.Popen(
                [sys.executable, "-I", "-S", str(GUARD)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
                pass_fds=[lock.fileno() for lock in locks],
            )
        try:
            self._folder = Path(self._event("folder", time.monotonic() + START_DEADLINE_S)["path"])
            self._start_on_free_port()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Ends the server and removes its temporary folder. Does nothing if it is not started."""
        guard, folder = self._guard, self._folder
        if guard is None:
            return
        if self._data_dir is None and self.pid:
            # It has nothing to save, and would handle SIGTERM only at its next tick.
            with contextlib.suppress(EmbeddedRedisError):
                self._order({"op": "signal", "number": int(signal.SIGKILL)})
        self._guard, self._folder, self.pid, self._unread = None, None, 0, b""
        self._events.clear()
        assert guard.stdin is not None
        assert guard.stdout is not None
        guard.stdin.close()
        try:
            guard.wait(STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            guard.kill()
            guard.wait()
        finally:
            guard.stdout.close()
            # The guard has removed it already, unless the guard was killed.
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)

    def kill(self) -> None:
        """Ends the server by SIGKILL, as a crash would; returns when it is dead."""
        self._signal(signal.SIGKILL)
        self._event("exit", time.monotonic() + STOP_DEADLINE_S)
        self.pid = 0

    def restart(self) -> None:
        """Starts the server again at the same address; ends it first if it runs.

        With a data directory it comes back with its data, without one it comes back empty.
        """
        self._read_events(0)
        if any(event["event"] == "exit" for event in self._events):
            # The server ended by itself.
            self._event("exit", time.monotonic())
            self.pid = 0
        if self.pid:
            self._signal(signal.SIGTERM)
            self._signal(signal.SIGCONT)
            self._event("exit", time.monotonic() + STOP_DEADLINE_S)
            self.pid = 0
        self._spawn()

    def pause(self) -> None:
        """Suspends the server (SIGSTOP): it accepts connections but answers nothing."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Resumes a paused server."""
        self._signal(signal.SIGCONT)

    def _start_on_free_port(self) -> None:
        if self._unix_socket:
            self.url = f"unix://{self._socket_path}"
            self._spawn()
            return
        for attempt in range(1, PORT_ATTEMPTS + 1):
            self.port = _free_port()
            self.url = f"redis://{HOST}:{self.port}/0"
            try:
                self._spawn()
                return
            except _ServerExitedError:
                if attempt == PORT_ATTEMPTS or "ddress already in use" not in self._log_tail():
                    raise

    def _spawn(self) -> None:
        recovers = self._data_dir is not None
        deadline = time.monotonic() + (RECOVERY_DEADLINE_S if recovers else START_DEADLINE_S)
        self._order({"op": "spawn", "argv": self._command(), "log": str(self._log)})
        self.pid = int(self._event("spawned", deadline)["pid"])
        while not self._answers():
            if time.monotonic() > deadline:
                raise EmbeddedRedisError(f"the server is not ready in time; {self._log_tail()}")
            self._read_events(POLL_S)
            if self._events:
                # The only unsolicited event is the end of the server.
                self._event("", deadline)

    def _command(self) -> list[str]:
        assert self._binary is not None
        command = [str(self._binary.path), "--port", str(self.port), "--bind", HOST]
        if self._unix_socket:
            command += ["--unixsocket", str(self._socket_path), "--unixsocketperm", "600"]
        if self._data_dir is None:
            command += ["--dir", str(self._private), "--save", "", "--appendonly", "no"]
        else:
            command += ["--dir", str(self._data_dir.resolve()), "--save", ""]
            command += ["--appendonly", "yes", "--appendfsync", "everysec"]
        return [*command, "--maxmemory-policy", "noeviction", "--daemonize", "no", *self._args]

    def _answers(self) -> bool:
        """Whether this server is ready. Another one may answer on a contended port."""
        family = socket.AF_UNIX if self._unix_socket else socket.AF_INET
        address: Any = str(self._socket_path) if self._unix_socket else (HOST, self.port)
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.settimeout(1.0)
                probe.connect(address)
                probe.sendall(b"PING\r\nINFO server\r\nQUIT\r\n")
                answer = b""
                while chunk := probe.recv(65536):
                    answer += chunk
        except OSError:
            return False
        return answer.startswith(b"+PONG") and b"process_id:%d\r\n" % self.pid in answer

    @property
    def _private(self) -> Path:
        if self._folder is None:
            raise EmbeddedRedisError("this embedded Redis is not started")
        return self._folder

    @property
    def _socket_path(self) -> Path:
        return self._private / "redis.sock"

    @property
    def _log(self) -> Path:
        return (self._data_dir or self._private) / "server.log"

    def _log_tail(self) -> str:
        try:
            lines = self._log.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:]
        except OSError as error:
            return f"its log cannot be read: {error}"
        return "\n  ".join(["the end of its log:", *lines])

    def _signal(self, number: int) -> None:
        if not self.pid:
            raise EmbeddedRedisError("this embedded Redis is not running")
        self._order({"op": "signal", "number": int(number)})
        self._event("signalled", time.monotonic() + STOP_DEADLINE_S)

    def _order(self, order: dict[str, Any]) -> None:
        if self._guard is None or self._guard.stdin is None:
            raise EmbeddedRedisError("this embedded Redis is not started")
        try:
            self._guard.stdin.write(json.dumps(order).encode() + b"\n")
        except OSError as error:
            raise EmbeddedRedisError("the server's guard process is gone") from error

    def _event(self, name: str, deadline: float) -> dict[str, Any]:
        """Waits for the guard to report `name`; raises if it reports the end of the server."""
        while not self._events:
            left = deadline - time.monotonic()
            if left <= 0:
                raise EmbeddedRedisError(f"no '{name}' from the server's guard in time")
            self._read_events(left)
        event = self._events.popleft()
        if event["event"] == name:
            return event
        self.pid = 0
        if event["event"] == "exit":
            raise _ServerExitedError(
                f"the server ended with status {event['status']}; {self._log_tail()}"
            )
        raise EmbeddedRedisError(f"the server could not be started: {event.get('error', event)}")

    def _read_events(self, timeout: float) -> None:
        """Reads what the guard reports within `timeout` seconds."""
        if self._guard is None or self._guard.stdout is None:
            raise EmbeddedRedisError("this embedded Redis is not started")
        readable, _, _ = select.select([self._guard.stdout], [], [], timeout)
        if not readable:
            return
        chunk = os.read(self._guard.stdout.fileno(), 65536)
        if not chunk:
            raise EmbeddedRedisError("the server's guard process is gone")
        *lines, self._unread = (self._unread + chunk).split(b"\n")
        self._events.extend(json.loads(line) for line in lines)


def _locked(data_dir: Path) -> IO[bytes]:
    """Locks a data folder, because two servers would corrupt each other's data."""
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = (data_dir / "lingua.lock").open("wb")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise EmbeddedRedisError(
            f"another embedded Redis uses the data folder {data_dir}; stop it, or set "
            "LINGUA_REDIS_DIR to another folder"
        ) from None
    return lock


def _free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])
