"""A table on a terminal of some width.

Text is broken only between words, so an id, an address or a path is always whole and can be copied.
If the columns do not fit, those that may give way are left out, and a line below names them. If
what is left does not fit either, each row becomes a block with one line per column.

Not a table of rich, which cuts or breaks a word that is wider than its column. Rich measures and
wraps the text: it knows the width of every character.
"""

import textwrap
from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

import click
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

if TYPE_CHECKING:
    from lingua_scheduler.cli.views.table import Column

# Narrower text is hard to read: rather leave out a column.
_LEAST_TEXT = 20


def fitted(
    columns: "Sequence[Column]", rows: Sequence[Sequence[str]], *, gap: int, width: int
) -> str:
    """The lines of the table, none wider than `width` unless a single word is."""
    shown = _shown(columns, rows, gap, width)
    if not shown:
        return _blocks(columns, rows, gap, width)
    widths = _widths(columns, rows, shown, gap, width)
    heads = [click.style(columns[at].name, bold=True) for at in shown]
    lines = [
        line
        for row in [heads, *([row[at] for at in shown] for row in rows)]
        for line in _lines(row, widths, gap)
    ]
    left_out = [column.name for at, column in enumerate(columns) if at not in shown]
    if left_out:
        note = (
            f"Left out for lack of width: {', '.join(left_out)}. "
            "A wider terminal, a pipe or --json has them."
        )
        lines += ["", *textwrap.wrap(note, width)]
    return "\n".join(lines)


def _shown(
    columns: "Sequence[Column]", rows: Sequence[Sequence[str]], gap: int, width: int
) -> list[int]:
    """The columns that fit; none if not even those fit that always stay."""
    shown = [at for at, column in enumerate(columns) if not column.gives_way]
    if _room(columns, rows, shown, gap, width) < 0:
        return []
    others = (at for at, column in enumerate(columns) if column.gives_way)
    for at in sorted(others, key=lambda at: columns[at].gives_way, reverse=True):
        more = sorted([*shown, at])
        if _room(columns, rows, more, gap, width) >= 0:
            shown = more
    return shown


def _room(
    columns: "Sequence[Column]",
    rows: Sequence[Sequence[str]],
    shown: Sequence[int],
    gap: int,
    width: int,
) -> int:
    """The width that is left if every text has its least width."""
    least = sum(
        _least_text(columns, rows, at) if columns[at].folds else _natural(columns, rows, at)
        for at in shown
    )
    return width - least - gap * (len(shown) - 1)


def _widths(
    columns: "Sequence[Column]",
    rows: Sequence[Sequence[str]],
    shown: Sequence[int],
    gap: int,
    width: int,
) -> list[int]:
    """The width of each column: texts share what the others leave."""
    room = _room(columns, rows, shown, gap, width)
    widths = []
    for at in shown:
        natural = _natural(columns, rows, at)
        if columns[at].folds:
            least = _least_text(columns, rows, at)
            more = min(natural - least, room)
            room -= more
            widths.append(least + more)
        else:
            widths.append(natural)
    return widths


def _natural(columns: "Sequence[Column]", rows: Sequence[Sequence[str]], at: int) -> int:
    return max(cell_len(columns[at].name), *(_width(row[at]) for row in rows), 0)


def _least_text(columns: "Sequence[Column]", rows: Sequence[Sequence[str]], at: int) -> int:
    cells = [columns[at].name, *(row[at] for row in rows)]
    word = max((_width(word) for cell in cells for word in cell.split()), default=0)
    return min(_natural(columns, rows, at), max(_LEAST_TEXT, word))


def _lines(row: Sequence[str], widths: Sequence[int], gap: int) -> list[str]:
    wrapped = [_wrap(cell, width) for cell, width in zip(row, widths, strict=True)]
    return [
        "".join(
            cell + " " * (width - _width(cell) + gap)
            for cell, width in zip(cells, widths, strict=True)
        ).rstrip()
        for cells in zip_longest(*wrapped, fillvalue="")
    ]


def _blocks(
    columns: "Sequence[Column]", rows: Sequence[Sequence[str]], gap: int, width: int
) -> str:
    """Each row as a block, as psql shows rows that are too wide."""
    heads = [click.style(column.name, bold=True) for column in columns]
    return "\n\n".join(
        page(list(zip(heads, row, strict=True)), gap=gap, width=width) for row in rows
    )


def page(rows: Sequence[tuple[str, str]], *, gap: int, width: int) -> str:
    """Names and texts, which are folded beside their name."""
    names = max(_width(name) for name, _ in rows)
    widths = (names, max(_LEAST_TEXT, width - names - gap))
    return "\n".join(line for row in rows for line in _lines(row, widths, gap))


def _wrap(cell: str, width: int) -> list[str]:
    """Lines of at most this width, unless a single word is wider."""
    if _width(cell) <= width:
        return [cell]
    whole = max(width, *(_width(word) for word in cell.split()))
    return [_ansi(line) for line in Text.from_ansi(cell).wrap(_CONSOLE, whole, overflow="fold")]


_CONSOLE = Console(force_terminal=True, color_system="standard", legacy_windows=False)


def _ansi(text: Text) -> str:
    text.rstrip()
    _CONSOLE.width = max(1, text.cell_len)
    with _CONSOLE.capture() as captured:
        _CONSOLE.print(text, end="", soft_wrap=True)
    return captured.get()


def _width(cell: str) -> int:
    return cell_len(click.unstyle(cell))
