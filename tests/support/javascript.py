"""Runs programs of the JavaScript SDK, which `make js` builds.

Tests that need it are skipped if it is not built, and fail if it is older than its sources.
"""

import asyncio
import contextlib
import json
import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.robustness.history import JAVASCRIPT, ClientHistory
from tests.support.records import Record

SDK = Path(__file__).parents[2] / "sdk" / "js"
TALKER = SDK / "build" / "test" / "programs" / "talker.js"
# What is to come comes at once; a busy machine may need much longer for it.
SOON_S = 60.0


def why_not() -> str:
    """Why programs cannot run here; empty if they can, or if they are out of date."""
    if shutil.which("node") is None:
        return "needs Node.js 20 or later, such as Debian's nodejs and npm; then: make js"
    return "" if TALKER.exists() else "the JavaScript SDK is not built: make js"


def is_out_of_date() -> bool:
    """Whether the programs are older than their sources."""
    sources = [*(SDK / "src").rglob("*.ts"), *(SDK / "test").rglob("*.ts")]
    return max(each.stat().st_mtime for each in sources) > TALKER.stat().st_mtime


def node_program() -> str:
    """Returns the path of Node.js. Skips the test if there is none, or if the SDK is not built."""
    if reason := why_not():
        pytest.skip(reason)
    if is_out_of_date():
        pytest.fail("the JavaScript SDK is older than its sources: make js")
    node = shutil.which("node")
    assert node is not None
    return node


class JavaScriptTalker:
    """A person who talks with the JavaScript SDK, in a process of its own.

    Attributes:
        history: what was said and heard, as the robustness suite writes it down.
        records: everything that the process has written.
    """

    def __init__(
        self,
        name: str,
        gateways: Sequence[str],
        *,
        directions: Sequence[tuple[str, str]] = (("en", "es"),),
        token_file: Path | None = None,
        partial_interval_ms: int = 0,
        features: Mapping[str, str] | None = None,
        start: int = 0,
    ) -> None:
        self.history = ClientHistory(
            name=name, kind=JAVASCRIPT, partial_interval_ms=partial_interval_ms
        )
        self.records: list[Record] = []
        self._orders = {
            "addresses": [f"ws://{address}" for address in gateways],
            "directions": [{"src": src, "tgt": tgt} for src, tgt in directions],
            "tokenFile": str(token_file or ""),
            "partialIntervalMs": partial_interval_ms,
            "features": dict(features or {}),
            "start": start,
        }
        self._process: asyncio.subprocess.Process | None = None
        self._changed = asyncio.Event()
        self._enough = False

    def stop(self) -> None:
        """Breaks off; that ends the sentence."""
        self._enough = True
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()

    async def talk(self) -> None:
        """From opening the session to its last result; whatever happens is written down."""
        self._process = await asyncio.create_subprocess_exec(
            node_program(),
            str(TALKER),
            json.dumps(self._orders),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        errors = asyncio.create_task(self._process.stderr.read())
        if self._enough:
            self.stop()
        try:
            async for line in self._process.stdout:
                self._note(json.loads(line))
            if code := await self._process.wait():
                said = (await errors).decode()
                self.history.lost = f"CRASHED: exit code {code} of {self.history.name}: {said}"
        finally:
            if self._process.returncode is None:
                self._process.kill()
            await asyncio.gather(self._process.wait(), errors)

    def _note(self, record: Record) -> None:
        self.records.append(record)
        match record["what"]:
            case "opened":
                self.history.session = record["session"]
            case "said":
                self.history.said.append((record["t"], record["word"]))
            case "lost":
                self.history.lost = record["message"]
            case "closed":
                pass
            case _:
                self.history.events.append(record)
        self._changed.set()

    def told(self, *what: str) -> list[Record]:
        """Records of these kinds."""
        return [each for each in self.records if each["what"] in what]

    async def until(self, what: str, count: int) -> None:
        """Returns when there are this many records of a kind, or the session is lost."""
        try:
            async with asyncio.timeout(SOON_S):
                while len(self.told(what)) < count and not self.history.lost:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(f"no {count} times {what}: {self.records[-20:]}") from None


@contextlib.asynccontextmanager
async def talking(*talkers: JavaScriptTalker) -> AsyncIterator[None]:
    """People who talk inside the block; at its end all results have come."""
    node_program()  # skips the test here, because a skip inside a task is not noticed
    tasks = [asyncio.create_task(talker.talk()) for talker in talkers]
    try:
        for talker in talkers:
            await talker.until("said", 1)
        yield
        for talker in talkers:
            talker.stop()
        async with asyncio.timeout(SOON_S):
            await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def run_program(path: Path, *arguments: str, **options: Any) -> tuple[int, str]:
    """Runs a program of Node.js. Returns its exit code, and what it wrote."""
    process = await asyncio.create_subprocess_exec(
        node_program(),
        str(path),
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        **options,
    )
    try:
        async with asyncio.timeout(SOON_S):
            written, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode or 0, written.decode()
