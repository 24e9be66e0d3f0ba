"""Text output for cells."""

from collections.abc import Sequence

import click

from lingua_scheduler.cli.views.output import columns, enum_name
from lingua_scheduler.v1 import pool_pb2

_STATE = pool_pb2.DESCRIPTOR.enum_types_by_name["CellState"]
_COLOURS = {
    pool_pb2.CELL_STATE_NEW: "yellow",
    pool_pb2.CELL_STATE_READY: "green",
    pool_pb2.CELL_STATE_DRAINING: "yellow",
}


def cell_list(cells: Sequence[pool_pb2.Cell]) -> str:
    """One cell per line."""
    return columns(
        ("CELL", "STATE", "NODES", "SLOTS", "SESSIONS", "ROOMS", "REDIS"),
        [(str(cell.number), _state(cell), *_has(cell), _redis(cell)) for cell in cells],
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


def _state(cell: pool_pb2.Cell) -> str:
    return click.style(enum_name(_STATE, cell.state).lower(), fg=_COLOURS.get(cell.state))


def _redis(cell: pool_pb2.Cell) -> str:
    if cell.is_up:
        return cell.address
    return f"{cell.address} {click.style('away', fg='red')}: {cell.down_reason}"
