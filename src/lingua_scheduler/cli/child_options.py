"""Hidden options of commands that `lingua up` runs as child processes, and what they do."""

import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

_ANNOUNCE_HELP = "Print a JSON line with the addresses of each service when all are ready."
_AWAIT_HELP = "Load, then read one line from stdin: a JSON object with more environment variables."
_UNTIL_EOF_HELP = "Drain and end when stdin ends, which happens if the parent process ends."


def child_options(command: Command) -> Command:
    """Add `--announce`, `--await-settings` and `--until-eof`."""
    announce = click.option("--announce", is_flag=True, hidden=True, help=_ANNOUNCE_HELP)
    awaits = click.option("--await-settings", is_flag=True, hidden=True, help=_AWAIT_HELP)
    until_eof = click.option("--until-eof", is_flag=True, hidden=True, help=_UNTIL_EOF_HELP)
    return announce(awaits(until_eof(command)))


def read_settings() -> bool:
    """Add the variables of the line on stdin to the environment; False if stdin has ended."""
    line = sys.stdin.readline()
    if line:
        os.environ.update(json.loads(line))
    return bool(line)


def announce_ready(name: str, *, address: str = "", metrics: str = "", web: str = "") -> None:
    """Tell the parent process that this part is ready, and where."""
    where = {"address": address, "metrics": metrics, "web": web}
    print(json.dumps({"service": name, **where, "pid": os.getpid()}), flush=True)


def end_with_stdin() -> None:
    """From now on, the end of stdin is a SIGTERM."""

    def wait() -> None:
        stdin = sys.stdin.fileno()
        while os.read(stdin, 4096):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="until-eof", daemon=True).start()
