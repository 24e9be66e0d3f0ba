"""What `lingua up` shows while it runs: lines, or on a terminal a live status below them."""

from __future__ import annotations

import os
import re
import sys
import threading
from contextlib import suppress
from typing import Any, Self

import click
from rich.console import Console

from lingua_scheduler.cli.clients.pool import PoolClient
from lingua_scheduler.cli.colour import colour_wanted
from lingua_scheduler.cli.failures import Failure
from lingua_scheduler.cli.options import Options
from lingua_scheduler.cli.up.local_scheduler import ALL, LocalScheduler
from lingua_scheduler.cli.up.supervised import SupervisedProcess
from lingua_scheduler.cli.views.states import BAD, GOOD, WARNING
from lingua_scheduler.cli.views.up_status import Numbers, Process, UpStatus
from lingua_scheduler.services.runtime.errors import SettingsError
from lingua_scheduler.v1 import instances_pb2

# Instances tell their numbers every 2 s.
_ASK_S = 2.0
_ASK_WITHIN_S = 1.0
_SHOW_CURSOR = b"\x1b[?25h\n"
_LEVELS = {"WARNING": WARNING, "ERROR": BAD, "CRITICAL": BAD}


class LineScreen:
    """Prints one line after the other: for pipes, files and terminals that cannot rewrite."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        pass

    def ready(self, part: str) -> None:
        """A part is ready."""

    def log(self, name: str, line: str) -> None:
        """A part has logged a line."""
        click.echo(_named(name, line), err=True)

    def note(self, name: str, line: str) -> None:
        """Something has become of a part."""
        self.log(name, line)

    def show(self, text: str) -> None:
        """Print what runs, when all of it does."""
        click.echo(text)

    def stopping(self) -> None:
        """The first signal. Not click.echo: the signal may have interrupted one."""
        os.write(sys.stderr.fileno(), b"\nEnding; once more kills at once.\n")

    def ending(self) -> None:
        """The end begins, by a signal or otherwise."""

    def killed(self) -> None:
        """The second signal; the process ends at once after that."""
        os.write(sys.stderr.fileno(), b"Killed; nothing was drained.\n")


class LiveScreen(LineScreen):
    """Shows a live status at the end of the terminal, and all lines above it.

    Args:
        parts: the names of what is started.
    """

    def __init__(self, parts: list[str]) -> None:
        self._console = Console(highlight=False)
        self._status = UpStatus(self._console, parts)
        self._over = threading.Event()

    def __enter__(self) -> Self:
        self._status.__enter__()
        return self

    def __exit__(self, *_: Any) -> None:
        self._over.set()
        self._status.__exit__()

    def ready(self, part: str) -> None:
        """A part is ready."""
        self._status.ready(part)

    def log(self, name: str, line: str) -> None:
        """A part has logged a line."""
        if sys.stderr.isatty():
            self._status.print(_coloured(_named(name, line)))
        else:
            super().log(name, line)

    def note(self, name: str, line: str) -> None:
        """Something has become of a part."""
        if sys.stderr.isatty():
            colour = GOOD if line.startswith("is back") else WARNING
            self._status.print(click.style(_named(name, line), fg=colour))
        else:
            super().log(name, line)

    def show(self, text: str) -> None:
        """Print what runs, when all of it does."""
        self._status.print(text)

    def follow(self, scheduler: LocalScheduler) -> float:
        """Show what goes on from now on. Returns how long the start took, in seconds."""
        took_s = self._status.up([_process(each) for each in scheduler.running])
        pool = scheduler.address("pool")
        threading.Thread(target=self._ask, args=(pool,), daemon=True).start()
        return took_s

    def stopping(self) -> None:
        """The first signal."""
        self._status.stop()

    def ending(self) -> None:
        """The end begins, by a signal or otherwise."""
        self._over.set()
        self._status.stop()

    def killed(self) -> None:
        """The second signal; the process ends at once after that."""
        os.write(sys.stdout.fileno(), _SHOW_CURSOR)
        super().killed()

    def _ask(self, pool: str) -> None:
        """Asks the pool service for the numbers of all services until the end."""
        options = Options(addresses={"pool": pool}, timeout_s=_ASK_WITHIN_S)
        # Files of tokens and certificates may be gone by now; the status does without numbers then.
        with suppress(SettingsError), PoolClient.opened(options) as client:
            while not self._over.wait(_ASK_S):
                try:
                    found = client.list_instances(with_settings=False).instances
                except Failure:
                    # It restarts, which the status shows, or refuses the caller.
                    self._status.tell(None)
                    continue
                serving = [
                    each.stats
                    for each in found
                    if each.health == instances_pb2.INSTANCE_HEALTH_SERVING
                ]
                self._status.tell(
                    Numbers(
                        nodes=sum(each.nodes for each in serving),
                        sessions=sum(each.sessions for each in serving),
                        jobs=sum(each.jobs for each in serving),
                        waiting=sum(each.jobs_waiting for each in serving),
                        done=sum(each.jobs_done for each in serving),
                        failed=sum(each.jobs_failed for each in serving),
                    )
                )


def _process(process: SupervisedProcess) -> Process:
    # `all`, or `all-1`, is the name of a process that runs all services.
    name = process.name
    shown = f"services{name.removeprefix(ALL)}" if name.split("-")[0] == ALL else name
    return Process(shown, lambda: process.runs)


def _named(name: str, line: str) -> str:
    # JSON lines already name their service, and must stay JSON.
    return line if line.startswith("{") else f"{name} | {line}"


def _coloured(line: str) -> str:
    found = re.match(r"[^|]+\| [0-9:.]+ (WARNING|ERROR|CRITICAL)\b", line)
    if not found or colour_wanted() is False:
        return line
    start, end = found.span(1)
    return line[:start] + click.style(found[1], fg=_LEVELS[found[1]], bold=True) + line[end:]
