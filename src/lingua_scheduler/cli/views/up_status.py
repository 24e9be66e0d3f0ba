"""The live status of `lingua up` at the end of a terminal; lines that are printed go above it."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self

from rich.console import Console, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from lingua_scheduler.cli.views.output import one_line, span
from lingua_scheduler.cli.views.states import BAD, WARNING, colour_of

_PER_S = 8
# A spinner that every terminal and every font has.
_SPINNER = "line"


class Process(NamedTuple):
    """A part of the scheduler: its name, and whether it runs now."""

    name: str
    runs: Callable[[], bool]


class Numbers(NamedTuple):
    """What the services have told last."""

    nodes: int
    sessions: int
    jobs: int
    waiting: int
    done: int
    failed: int


class UpStatus:
    """Shows how far the start is, then what goes on, then how far the end is.

    A context manager; it may be told things from several threads.

    Args:
        console: a terminal.
        parts: the names of all parts in the order in which they become ready, the Redis first.
        clock: a monotonic clock.
    """

    def __init__(
        self,
        console: Console,
        parts: Sequence[str],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._console = console
        self._clock = clock
        self._began = clock()
        self._parts = parts
        self._since = {parts[0]: self._began}
        self._ready: dict[str, float] = {}
        self._up_since: float | None = None
        self._stopping_since: float | None = None
        self._numbers: Numbers | None = None
        self._processes: Sequence[Process] = ()
        self._spinner = Spinner(_SPINNER)
        self._lock = threading.Lock()
        self._live = Live(
            self, console=console, refresh_per_second=_PER_S, transient=True, redirect_stderr=False
        )

    def __enter__(self) -> Self:
        self._live.start(refresh=True)
        return self

    def __exit__(self, *_: Any) -> None:
        self._live.stop()

    def ready(self, part: str) -> None:
        """A part is ready."""
        now = self._clock()
        with self._lock:
            self._ready[part] = now
            if part == self._parts[0]:
                # All processes load their code side by side from now on.
                self._since |= dict.fromkeys(self._parts[1:], now)
        self._live.refresh()

    def up(self, processes: Sequence[Process]) -> float:
        """Everything is ready. Returns how long that took, in seconds."""
        self._processes = processes
        self._up_since = self._clock()
        return self._up_since - self._began

    def tell(self, numbers: Numbers | None) -> None:
        """What the services tell; None if they do not answer."""
        self._numbers = numbers

    def stop(self) -> None:
        """The end begins. Does nothing but set a number: signal handlers call it."""
        if self._stopping_since is None:
            self._stopping_since = self._clock()

    def print(self, text: str) -> None:
        """Print above the status, whole lines that the terminal may break; text may be styled."""
        self._console.print(Text.from_ansi(text), soft_wrap=True)

    def __rich__(self) -> RenderableType:
        if self._stopping_since is not None:
            return self._end(self._stopping_since)
        return self._start() if self._up_since is None else self._run(self._up_since)

    def _start(self) -> RenderableType:
        now = self._clock()
        table = Table.grid(padding=(0, 2))
        for part in self._parts:
            since, ready = self._since.get(part), self._ready.get(part)
            word = "ready" if ready is not None else "waiting" if since is None else "starting"
            seconds = "" if since is None else f"{(ready or now) - since:.1f} s"
            mark = self._spinner.render(now) if word == "starting" else ""
            table.add_row(mark, one_line(part), Text(word, colour_of(word) or ""), seconds)
        return table

    def _run(self, since: float) -> Text:
        line = Text(f"up {span(round((self._clock() - since) * 1000))}", no_wrap=True)
        line.overflow = "ellipsis"
        for name in self._names(runs=False):
            line.append(f" | {name} restarting", BAD)
        if numbers := self._numbers:
            line.append(f" | {_count(numbers.nodes, 'node')}", "" if numbers.nodes else WARNING)
            line.append(f" | {_count(numbers.sessions, 'session')}")
            line.append(f" | jobs: {numbers.jobs} now, {numbers.done} done")
            if numbers.waiting:
                line.append(f", {numbers.waiting} waiting", WARNING)
            if numbers.failed:
                line.append(f", {numbers.failed} failed", BAD)
        line.append(" | Ctrl-C ends")
        return line

    def _end(self, since: float) -> Text:
        left = self._names(runs=True)
        line = Text(f"stopping, {self._clock() - since:.0f} s", WARNING, no_wrap=True)
        line.overflow = "ellipsis"
        if left:
            line.append(f" | still running: {', '.join(left)}", "default")
        line.append(" | Ctrl-C again kills at once", "default")
        return line

    def _names(self, *, runs: bool) -> list[str]:
        return [one_line(each.name) for each in self._processes if each.runs() is runs]


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"
