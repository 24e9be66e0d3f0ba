"""One line of a terminal that is rewritten in place."""

import click
from rich.cells import cell_len

from lingua_scheduler.cli.views.output import one_line, terminal_width

_CLEAR = "\r\x1b[K"


class LiveLine:
    """Shows preliminary text; cleared before something final is printed.

    Args:
        shown: whether there is a terminal; otherwise nothing is written.
    """

    def __init__(self, *, shown: bool) -> None:
        self._shown = shown
        self._written = False

    def show(self, text: str) -> None:
        """Replace the line. If the text is too long, its beginning is cut off."""
        if self._shown:
            # One column less: a full line would move the cursor to the next line.
            self._write(_CLEAR + end_of(one_line(text), terminal_width() - 1))
            self._written = True

    def clear(self) -> None:
        """Clear the line, before anything else is printed."""
        if self._written:
            self._write(_CLEAR)
            self._written = False

    def _write(self, text: str) -> None:
        # Not a colour: NO_COLOR must not remove it.
        click.echo(text, nl=False, color=True)


def end_of(text: str, width: int) -> str:
    """The longest end of a text that fits into `width` columns: the newest words are there."""
    while cell_len(text) > width:
        text = text[1:]
    # An accent whose letter was cut off belongs to nothing.
    while text and cell_len(text[0]) == 0:
        text = text[1:]
    return text
