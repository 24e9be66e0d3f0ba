"""How a command fails: its exit code, a reason for tools, words for a person.

Loads nothing but click, because every start of `lingua` needs it.
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
        reason: the word for tools, as in ErrorReason where a service gave it.
    """

    def __init__(self, message: str, *, reason: str, exit_code: int = FAILED) -> None:
        super().__init__(message)
        self.reason = reason
        self.exit_code = exit_code  # type: ignore[misc]  # click has one for each class


def report(error: click.ClickException, as_json: bool) -> None:
    """Tells of the failure on stderr: as one JSON object, or in words."""
    if as_json:
        reason = error.reason if isinstance(error, Failure) else "USAGE"
        told = {"error": {"reason": reason, "message": error.format_message()}}
        click.echo(json.dumps(told), err=True)
    else:
        error.show()
