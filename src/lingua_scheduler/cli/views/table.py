"""Tables: one row a line in a pipe, fitted to the width on a terminal.

In a pipe a row is one line, however wide it is, and all columns are there: `grep`, `awk` and `cut`
rely on it. On a terminal columns give way (see `fitted`).
"""

import textwrap
from collections.abc import Sequence
from typing import NamedTuple

import click

from lingua_scheduler.cli.views.output import is_terminal, terminal_width

# Spaces between two columns.
GAP = 2


class Column(NamedTuple):
    """A column of a table.

    Attributes:
        name: its header.
        gives_way: 1 is left out first if the terminal is too narrow, then 2; 0 always stays.
        folds: whether its text may be broken between words.
    """

    name: str
    gives_way: int = 0
    folds: bool = False


def table(columns: Sequence[Column], rows: Sequence[Sequence[str]], *, gap: int = GAP) -> str:
    """Lines with aligned columns; cells may be styled."""
    if not is_terminal():
        return aligned([column.name for column in columns], rows, gap)
    # Not at the top: pipes do not need rich, which takes 0.1 s to load on a small machine.
    from lingua_scheduler.cli.views.fitted import fitted

    return fitted(columns, rows, gap=gap, width=terminal_width())


def fact_page(head: tuple[str, str], rows: Sequence[tuple[str, str]]) -> str:
    """A page: one fact a line, its name first. On a terminal long facts are folded."""
    if not is_terminal():
        return aligned(head, rows, GAP)
    from lingua_scheduler.cli.views.fitted import page

    heads = (click.style(head[0], bold=True), click.style(head[1], bold=True))
    return page([heads, *rows], gap=GAP, width=terminal_width())


def paragraph(text: str) -> str:
    """Text that is broken between words on a terminal; one line elsewhere."""
    if not is_terminal():
        return text
    width = terminal_width()
    return textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False)


def aligned(header: Sequence[str], rows: Sequence[Sequence[str]], gap: int) -> str:
    """Lines with aligned columns, however wide they are."""
    lines = [[click.style(head, bold=True) for head in header], *rows]
    widths = [max(_width(line[at]) for line in lines) for at in range(len(header))]
    return "\n".join(
        "".join(
            cell + " " * (width - _width(cell) + gap)
            for cell, width in zip(line, widths, strict=True)
        ).rstrip()
        for line in lines
    )


def _width(cell: str) -> int:
    return len(click.unstyle(cell))
