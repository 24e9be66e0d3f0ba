"""Text output for cells."""

from collections.abc import Sequence

import click

from lingua_scheduler.cli.views.output import enum_name
from lingua_scheduler.cli.views.states import BAD, state
from lingua_scheduler.cli.views.table import Column, table
from lingua_scheduler.v1 import pool_pb2

_STATE = pool_pb2.DESCRIPTOR.enum_types_by_name["CellState"]


def cell_list(cells: Sequence[pool_pb2.Cell]) -> str:
    """One cell per line."""
    return table(
        (
            *(Column("CELL"), Column("STATE"), Column("NODES"), Column("SLOTS")),
            *(Column("SESSIONS", 2), Column("ROOMS", 1), Column("REDIS", folds=True)),
        ),
        [
            (
                str(cell.number),
                state(enum_name(_STATE, cell.state).lower()),
                *_has(cell),
                _redis(cell),
            )
            for cell in cells
        ],
    )


def contents(cell: pool_pb2.Cell) -> str:
    """What a cell has, in words."""
    counts = [
        (cell.sessions, "session"),
        (cell.rooms, "room"),
        (cell.nodes, "node"),
    ]
    listed = [f"{count} {word}{'' if count == 1 else 's'}" for count, word in counts if count]
    return ", ".join(listed) or "nothing"


def _has(cell: pool_pb2.Cell) -> tuple[str, ...]:
    if not cell.is_up:
        return ("?",) * 4
    slots = f"{cell.used_slots}/{cell.slots}"
    return str(cell.nodes), slots, str(cell.sessions), str(cell.rooms)


def _redis(cell: pool_pb2.Cell) -> str:
    if cell.is_up:
        return cell.address
    return f"{cell.address} {click.style('away', fg=BAD)}: {cell.down_reason}"
