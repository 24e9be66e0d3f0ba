"""A process that a test starts, watches and ends."""

import asyncio
import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.nursery import ForkedProcess, Nursery, nursery

# A process imports for about a second, and for several on a machine that runs other tests.
START_S = 30.0
# An event that should come at once may take some seconds on a busy machine.
SOON_S = 10.0


class Process:
    """A process with a folder of its own for its output and log. It can be started again.

    Used as a context manager, it has started inside the block and is killed at the end.

    Args:
        title: names it in messages and in the name of its folder.

    Attributes:
        nursery: which forks it; None: that of this process.
    """

    nursery: Nursery | None = None

    def __init__(self, title: str) -> None:
        self.title = title
        self._process: ForkedProcess | subprocess.Popen[bytes] | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Self:
        try:
            self.start()
            self.wait_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def process(self) -> ForkedProcess | subprocess.Popen[bytes]:
        """The process of the last start."""
        assert self._process is not None, f"{self.title} was not started"
        return self._process

    def start(self) -> None:
        """Starts the process; it may not be ready yet. Subclasses say which program it runs."""
        raise NotImplementedError

    def wait_ready(self) -> None:
        """Returns when the process is ready to be used. By default it is at once."""

    async def restart(self) -> None:
        """Starts the process again after it has ended; returns when it is ready."""
        assert self.process.poll() is not None, f"{self.title} still runs"
        self.start()
        await asyncio.to_thread(self.wait_ready)

    def kill(self) -> None:
        """Sends SIGKILL, and returns when the process is dead."""
        self.process.kill()
        self.process.wait()

    def terminate(self) -> None:
        """Sends SIGTERM: the process may finish its work."""
        self.process.send_signal(signal.SIGTERM)

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Stops the process (SIGSTOP) inside the block."""
        process = self.process
        process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            process.send_signal(signal.SIGCONT)

    def wait_end(self, within: float = START_S) -> int:
        """Waits for the end of the process; returns its exit code."""
        return self.process.wait(within)

    async def exit_code(self, within: float = START_S) -> int:
        """As `wait_end`, without blocking the event loop."""
        return await asyncio.to_thread(self.wait_end, within)

    def stop(self) -> None:
        """Kills the process if it runs, and removes its folder."""
        if self._process is not None:
            self.kill()
            self._process = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def wait_for(self, condition: Callable[[], object], what: str, within: float = START_S) -> None:
        """Returns when a condition holds; fails with the log if the process ends before.

        Args:
            condition: is asked again and again.
            what: says in the failure what the process was to be, such as "ready".
            within: seconds.
        """
        deadline = time.monotonic() + within
        while not condition():
            assert self.process.poll() is None, f"{self.title} ended:\n{self.log()}"
            assert time.monotonic() < deadline, f"{self.title} is not {what}:\n{self.log()}"
            time.sleep(0.01)

    def output(self) -> str:
        """What the process has written to stdout since its last start."""
        return self._written("out")

    def log(self) -> str:
        """What the process has written to stderr, over all starts."""
        return self._written("err")

    def memory_bytes(self) -> int:
        """The resident memory of the process; 0 if it has ended."""
        try:
            pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        except OSError:
            return 0
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def cpu_seconds(self) -> float:
        """The processor time that the process has used."""
        stat = Path(f"/proc/{self.process.pid}/stat").read_text()
        user, system = stat.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def file(self, name: str) -> Path:
        """The path of a file in the folder of the process."""
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix=f"lingua-{self.title}-")
        return Path(self._folder.name) / name

    def fork(self, code: str, *, env: Mapping[str, str]) -> None:
        """Runs Python code in a process that the nursery forks: quicker than a new interpreter."""
        out, err = self._output_files()
        self._process = (self.nursery or nursery()).fork(code, env=env, out=out, err=err)

    def spawn(
        self,
        command: Sequence[str | Path],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        """Runs a command, as a person or a container would."""
        out, err = self._output_files()
        with out.open("wb") as stdout, err.open("ab") as stderr:
            self._process = subprocess.Popen(
                command, env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr
            )

    def _written(self, name: str) -> str:
        if self._folder is None or not (path := self.file(name)).exists():
            return ""
        return path.read_text(errors="replace")

    def _output_files(self) -> tuple[Path, Path]:
        """Makes the files before the process does, so that they can be read at once."""
        out, err = self.file("out"), self.file("err")
        out.write_bytes(b"")
        err.touch()
        return out, err


class CommandProcess(Process):
    """A command that runs until a test ends it, or until it ends by itself.

    Args:
        title: names it in messages.
        command: its program and arguments.
        env: its environment; by default that of the tests.
        cwd: its folder; by default that of the tests.
    """

    def __init__(
        self,
        title: str,
        command: Sequence[str | Path],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        super().__init__(title)
        self._command = command
        self._env = env
        self._cwd = cwd

    def start(self) -> None:
        """Starts the command."""
        self.spawn(self._command, env=self._env, cwd=self._cwd)


def environment(**settings: object) -> dict[str, str]:
    """The environment of the tests with these settings, and only the number of cells of its own."""
    kept = {
        key: value
        for key, value in os.environ.items()
        if key == "LINGUA_CELLS" or not key.startswith(("LINGUA_", "OTEL_"))
    }
    # Where a gateway is started without a word about it, its web entry has a free port as well.
    # `lingua up` runs a console only where a test asks for one.
    free = {"LINGUA_GATEWAY_WEB_LISTEN": "127.0.0.1:0", "LINGUA_CONSOLE_LISTEN": ""}
    return {
        **kept,
        **free,
        **{f"LINGUA_{name.upper()}": str(value) for name, value in settings.items()},
    }
