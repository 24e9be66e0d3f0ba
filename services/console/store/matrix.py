"""Room by direction: source x target, shortages first."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import Literal, NamedTuple

from lingua_scheduler.services.console.store.fleet import Fleet

Kind = Literal["speech", "text"]
# Languages on each side of a matrix; those with the greatest shortage are kept.
MAX_LANGUAGES = 200


class Cell(NamedTuple):
    """What the ready nodes of a direction have."""

    free: int
    slots: int
    ready_nodes: int


@dataclass(frozen=True, slots=True)
class Matrix:
    """All directions of one kind. Sources and targets with a shortage come first."""

    kind: Kind
    sources: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    cells: Mapping[str, Cell] = field(default_factory=dict)

    def shortages(self, count: int) -> list[tuple[str, Cell]]:
        """The directions with the smallest share of free slots; those without slots first."""
        return nsmallest(count, self.cells.items(), key=_shortage)


class MatrixCache:
    """Matrices of a fleet, computed again only after something has changed."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._made: dict[Kind, tuple[int, Matrix]] = {}

    def get(self, kind: Kind) -> Matrix:
        """The matrix of a kind. `Fleet.settle` has to be called before."""
        version, matrix = self._made.get(kind, (-1, Matrix(kind)))
        if version != self._fleet.version:
            version, matrix = self._fleet.version, matrix_of(self._fleet, kind)
            self._made[kind] = version, matrix
        return matrix


def matrix_of(fleet: Fleet, kind: Kind) -> Matrix:
    """Sums the room of all capability sets by direction."""
    sums: dict[str, list[int]] = {}
    for each in fleet.with_nodes():
        free, slots, ready = each.free, each.slots, each.ready_nodes
        for direction in each.speech if kind == "speech" else each.text:
            cell = sums.get(direction)
            if cell is None:
                sums[direction] = [free, slots, ready]
            else:
                cell[0] += free
                cell[1] += slots
                cell[2] += ready
    cells = {direction: Cell(*cell) for direction, cell in sums.items()}
    sources, targets = _languages(cells, 0), _languages(cells, 1)
    if len(sources) > MAX_LANGUAGES or len(targets) > MAX_LANGUAGES:
        sources, targets = sources[:MAX_LANGUAGES], targets[:MAX_LANGUAGES]
        cells = dict(_within(cells, set(sources), set(targets)))
    return Matrix(kind, tuple(sources), tuple(targets), cells)


def share(cell: Cell) -> float:
    """The share of free slots; -1 if there are no slots at all."""
    return cell.free / cell.slots if cell.slots else -1.0


def _shortage(item: tuple[str, Cell]) -> tuple[float, int, str]:
    direction, cell = item
    return share(cell), cell.slots, direction


def _languages(cells: Mapping[str, Cell], side: int) -> list[str]:
    """The languages of one side: by their worst direction, then by all of them together."""
    worst: dict[str, float] = {}
    free: dict[str, int] = {}
    slots: dict[str, int] = {}
    for direction, cell in cells.items():
        code = direction.split(":")[side]
        worst[code] = min(worst.get(code, 1.0), share(cell))
        free[code] = free.get(code, 0) + cell.free
        slots[code] = slots.get(code, 0) + cell.slots
    return sorted(
        worst,
        key=lambda code: (worst[code], free[code] / slots[code] if slots[code] else -1.0, code),
    )


def _within(
    cells: Mapping[str, Cell], sources: set[str], targets: set[str]
) -> Iterable[tuple[str, Cell]]:
    for direction, cell in cells.items():
        src, _, tgt = direction.partition(":")
        if src in sources and tgt in targets:
            yield direction, cell
