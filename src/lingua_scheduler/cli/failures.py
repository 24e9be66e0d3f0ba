"""Failures of commands: exit code, reason for tools, message and hint for people.

Imports only click, because every start of `lingua` needs this module.
"""

import json
import shutil
import sys
import textwrap

import click

from lingua_scheduler.cli.colour import colour_wanted

FAILED = 1
USAGE = 2
UNREACHABLE = 3
NOT_FOUND = 4

# Longer lines are hard to read, however wide the terminal is.
_WIDEST = 100


class Failure(click.ClickException):
    """Ends the command.

    Args:
        message: what was wrong, and what was expected.
        reason: a constant for tools; a name of ErrorReason if a service gave it.
        hint: what to do, a sentence; part of the message for tools and pipes.
        tip: what else may help; shown only to a person at a terminal.
    """

    def __init__(
        self,
        message: str,
        *,
        reason: str,
        exit_code: int = FAILED,
        hint: str = "",
        tip: str = "",
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.exit_code = exit_code  # type: ignore[misc]  # click defines it per class
        self.hint = hint
        self.tip = tip

    def format_message(self) -> str:
        """The message and the hint in one line, for tools and pipes."""
        if not self.hint:
            return self.message
        return f"{self.message}{'. ' if self.hint[0].isupper() else '; '}{self.hint}"


def report(error: click.ClickException, as_json: bool) -> None:
    """Report the failure on stderr, as a JSON object or as text."""
    if as_json:
        reason = error.reason if isinstance(error, Failure) else "USAGE"
        told = {"error": {"reason": reason, "message": error.format_message()}}
        click.echo(json.dumps(told), err=True)
    elif sys.stderr.isatty():
        for line in told_lines(error, width=shutil.get_terminal_size().columns):
            click.echo(line, err=True, color=colour_wanted())
    else:
        error.show()


def told_lines(error: click.ClickException, *, width: int) -> list[str]:
    """What a person at a terminal reads: `Error:` what was wrong, `Hint:` what to do."""
    if isinstance(error, Failure):
        message, hints = error.message, [error.tip, error.hint]
    else:
        message, hints = error.format_message(), _usage_hints(error)
    lines = _block("Error:", "red", message, width)
    if hint := "\n".join(each[0].upper() + each[1:] for each in hints if each):
        lines += _block("Hint:", "cyan", hint, width)
    return lines


def _usage_hints(error: click.ClickException) -> list[str]:
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is None:
        return []
    usage = " ".join(context.get_usage().split())
    return [f"{usage}\n'{context.command_path} --help' tells more"]


def _block(head: str, colour: str, text: str, width: int) -> list[str]:
    """The text beside its head; broken between words only, so that names can be copied."""
    indent = " " * (len(head) + 1)
    first, *rest = [
        line
        for paragraph in text.splitlines() or [""]
        for line in textwrap.wrap(
            paragraph,
            max(20, min(width, _WIDEST) - len(indent)),
            break_long_words=False,
            break_on_hyphens=False,
            subsequent_indent=" " * (len(paragraph) - len(paragraph.lstrip())),
        )
        or [""]
    ]
    return [f"{click.style(head, fg=colour, bold=True)} {first}", *(indent + line for line in rest)]
