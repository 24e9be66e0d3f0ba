"""A service as a process of its own, on real sockets: started, watched, killed, started again."""

import asyncio
import json
import os
import signal
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from tests.support.nursery import ForkedProcess, nursery

RUNNER = """
import asyncio, importlib, json, os, sys
from lingua_scheduler.services.runtime.errors import SettingsError
from lingua_scheduler.services.runtime.settings.settings import load_settings

package = "lingua_scheduler.services." + os.environ["TEST_PACKAGE"]
for name, value in json.loads(os.environ["TEST_LIMITS"]).items():
    module, _, constant = name.rpartition(".")
    module = importlib.import_module(f"{package}.{module}")
    assert hasattr(module, constant), name
    setattr(module, constant, value)

def ready(address, metrics):
    print("ready", address, metrics, flush=True)

try:
    asyncio.run(importlib.import_module(f"{package}.main").serve(load_settings(), ready))
except SettingsError as error:
    sys.exit(f"refused: {error}")
"""

# A process imports for about a second; on a machine that runs other tests, for some more.
START_S = 30.0
# What is to come comes at once; a busy machine may need some seconds for it.
SOON_S = 10.0

_FAULTS = ("Traceback", "never retrieved", "never awaited", "Exception ignored")


class WatchedProcess:
    """A process of the tests, and a folder for what it writes; it can be killed, and started again.

    Args:
        called: what it is, for messages.
    """

    def __init__(self, called: str) -> None:
        self._called = called
        self._process: ForkedProcess | subprocess.Popen[bytes] | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    @property
    def process(self) -> ForkedProcess | subprocess.Popen[bytes]:
        """The process, while it is started."""
        assert self._process is not None, f"{self._called} is not started"
        return self._process

    def kill(self) -> None:
        """Ends it by SIGKILL; returns when it is dead."""
        self.process.kill()
        self.process.wait()

    def terminate(self) -> None:
        """Asks it to finish what it has."""
        self.process.send_signal(signal.SIGTERM)

    async def exit_code(self, within: float = START_S) -> int:
        """Waits until the process has ended."""
        return await asyncio.to_thread(self.process.wait, within)

    def stop(self) -> None:
        """Ends it at once and removes what it wrote; how it drains has its own tests."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def log(self) -> str:
        """Everything that it has written to stderr."""
        return self._file("err").read_text(errors="replace")

    def _make_folder(self, prefix: str) -> None:
        self._folder = self._folder or tempfile.TemporaryDirectory(prefix=f"lingua-{prefix}-")

    def _file(self, name: str) -> Path:
        assert self._folder is not None, f"{self._called} is not started"
        return Path(self._folder.name) / name


class ServiceProcess(WatchedProcess):
    """Starts a service and ends it; `settings` are fields of Settings.

    Used as a context manager it is ready inside the block. It keeps its address over a restart.

    Args:
        limits: constants of the service's modules, such as {"nodes.admission.MAX_BYTES": 1000}.
        environ: further variables.
    """

    name: ClassVar[str]
    """Its name in settings, such as `pool` in pool_listen."""
    package: ClassVar[str]
    """Its folder in services/."""
    runner: ClassVar[str] = RUNNER
    """The code that its process runs."""

    def __init__(
        self,
        *,
        redis_url: str,
        prefix: str,
        limits: dict[str, float] | None = None,
        environ: dict[str, str] | None = None,
        **settings: str | int,
    ) -> None:
        super().__init__(f"the {self.name} service")
        self.prefix = prefix
        self.address = ""
        self.metrics_address = ""
        self._settings: dict[str, str | int] = {
            "redis_url": redis_url,
            "redis_prefix": prefix,
            f"{self.name}_listen": "127.0.0.1:0",
            f"{self.name}_metrics_listen": "127.0.0.1:0",
            "log_format": "json",
            **settings,
        }
        self._environ = {
            "TEST_PACKAGE": self.package,
            "TEST_LIMITS": json.dumps(limits or {}),
            **(environ or {}),
        }

    def __enter__(self) -> Self:
        self.start()
        try:
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

    def start(self) -> None:
        """Starts the process; it is not ready yet."""
        inherited = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("LINGUA_", "OTEL_"))
        }
        given = {f"LINGUA_{name.upper()}": str(value) for name, value in self._settings.items()}
        self._make_folder(self.name)
        # They are looked at before the new process gets to them.
        self._file("out").write_bytes(b"")
        self._file("err").touch()
        self._process = nursery().fork(
            self.runner,
            env={**inherited, **given, **self._environ},
            out=self._file("out"),
            err=self._file("err"),
        )

    def wait_ready(self, within: float = START_S) -> None:
        """Returns when the service says that it answers; fails with its log if it ends."""
        deadline = time.monotonic() + within
        while not self._file("out").read_text().endswith("\n"):
            assert self.process.poll() is None, f"the {self.name} service ended:\n{self.log()}"
            assert time.monotonic() < deadline, f"{self.name} is not ready:\n{self.log()}"
            time.sleep(0.01)
        _, self.address, self.metrics_address = self._file("out").read_text().split()
        self._settings[f"{self.name}_listen"] = self.address
        self._settings[f"{self.name}_metrics_listen"] = self.metrics_address

    async def restart(self) -> None:
        """Starts it again, at the same address, after it has ended; returns when it is ready."""
        assert self.process.poll() is not None, "end it first"
        self.start()
        await asyncio.to_thread(self.wait_ready)

    def faults(self) -> list[str]:
        """Lines of the log that only a bug writes."""
        lines = self.log().splitlines()
        return [line for line in lines if any(mark in line for mark in _FAULTS)]

    async def metric(self, name: str, **labels: str) -> float:
        """The value of a metric, summed over what the labels leave open; 0 where it is not."""
        text = await asyncio.to_thread(_fetch, f"http://{self.metrics_address}/metrics")
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        found = (line for line in text.splitlines() if line.split("{")[0].split(" ")[0] == name)
        lines = [line for line in found if all(label in line for label in wanted)]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines)

    async def reaches(self, value: float, name: str, **labels: str) -> None:
        """Returns when a metric is as large as that."""
        deadline = time.monotonic() + SOON_S
        while (now := await self.metric(name, **labels)) < value:
            assert time.monotonic() < deadline, f"{name} is {now}, not {value}"
            await asyncio.sleep(0.01)

    def memory_bytes(self) -> int:
        """What the process holds in memory."""
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=SOON_S) as response:
        return str(response.read().decode())
