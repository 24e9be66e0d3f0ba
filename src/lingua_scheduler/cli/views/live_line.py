"""One line of a terminal that is written again and again."""

import unicodedata

import click

from lingua_scheduler.cli.views.output import one_line, terminal_width

_CLEAR = "\r\x1b[K"


class LiveLine:
    """What is so far; gone when something final is printed.

    Args:
        shown: whether there is a terminal to show it on; else nothing is ever written.
    """

    def __init__(self, *, shown: bool) -> None:
        self._shown = shown
        self._written = False

    def show(self, text: str) -> None:
        """Replaces what was there. What does not fit is left out at its beginning."""
        if self._shown:
            # One column less: a full line would make the terminal go on to the next.
            self._write(_CLEAR + end_of(one_line(text), terminal_width() - 1))
            self._written = True

    def clear(self) -> None:
        """Before anything else is printed."""
        if self._written:
            self._write(_CLEAR)
            self._written = False

    def _write(self, text: str) -> None:
        # This is no colour: NO_COLOR must not take it away.
        click.echo(text, nl=False, color=True)


def end_of(text: str, width: int) -> str:
    """As much of the end of a text as `width` columns hold: the newest words are there."""
    at = len(text)
    while at and (width := width - _columns(text[at - 1])) >= 0:
        at -= 1
    # An accent whose letter did not fit would stand on nothing.
    while 0 < at < len(text) and unicodedata.combining(text[at]):
        at += 1
    return text[at:]


def _columns(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1
