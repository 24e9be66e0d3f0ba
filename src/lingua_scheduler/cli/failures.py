"""Failures of commands: exit code, reason for tools, message for people.

Imports only click, because every start of `lingua` needs this module.
"""

import json

import click

FAILED = 1
USAGE = 2
UNREACHABLE = 3
NOT_FOUND = 4


class Failure(click.ClickException):
    """Ends the command.

    Args:
        message: what was wrong, what was expected, what to do.
        reason: a constant for tools; a name of ErrorReason if a service gave it.
    """

    def __init__(self, message: str, *, reason: str, exit_code: int = FAILED) -> None:
        super().__init__(message)
        self.reason = reason
        self.exit_code = exit_code  # type: ignore[misc]  # click defines it per class


def report(error: click.ClickException, as_json: bool) -> None:
    """Report the failure on stderr, as a JSON object or as text."""
    if as_json:
        reason = error.reason if isinstance(error, Failure) else "USAGE"
        told = {"error": {"reason": reason, "message": error.format_message()}}
        click.echo(json.dumps(told), err=True)
    else:
        error.show()
