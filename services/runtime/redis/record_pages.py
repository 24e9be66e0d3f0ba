"""Lists records in pages, for people and tools. Each record has a key of its own."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, Self, TypeVar

from lingua_scheduler.services.runtime.errors import DependencyDownError, InvalidMessageError
from lingua_scheduler.services.runtime.redis.cells.cells import Cell
from lingua_scheduler.services.runtime.redis.link import RedisLink

PAGE = 100
# Steps after which a page is returned even if it is not full.
_STEPS_A_PAGE = 20
# Records read at the same time, so that other calls do not wait long behind them.
_RECORDS_AT_ONCE = 64

Record = Mapping[str, bytes]
T = TypeVar("T")
# One step of a scan of a cell: from a cursor ("0" at the beginning) to the next cursor ("0" at the
# end), and the ids on the way.
Step = Callable[[Cell, str], Awaitable[tuple[str, list[str]]]]
# A token of 64 bits has 12 for the cell. No scan of one key has cursors of more than the other 52.
_CELLS = 4096


class Position(NamedTuple):
    """How far a list over cells has got, which lists one cell after the other.

    Attributes:
        at: which of the cells.
        cursor: of the scan of that cell; "0" at its beginning.
    """

    at: int = 0
    cursor: str = "0"

    @classmethod
    def of_token(cls, page_token: str, cells: int) -> Self:
        """The position that a page token stands for; a token of one cell is the cursor.

        Raises:
            InvalidMessageError: there are not as many cells.
        """
        if cells == 1 or not page_token:
            return cls(0, page_token or "0")
        cursor, at = divmod(int(page_token), _CELLS)
        if at >= cells:
            problem = f"names cell {at}, and there are only {cells}"
            raise InvalidMessageError(f"page_token: {problem}", fields=[("page_token", problem)])
        return cls(at, str(cursor))

    def token(self, cells: int) -> str:
        """The token of the page that begins here; "" after the last cell."""
        if self.at == cells:
            return ""
        return self.cursor if cells == 1 else str(int(self.cursor) * _CELLS + self.at)

    def after(self, cursor: str) -> "Position":
        """The position after a step which has returned this cursor."""
        return Position(self.at + 1) if cursor == "0" else Position(self.at, cursor)


async def read_record(link: RedisLink, key: str) -> Record:
    """The hash under a key; empty if there is none. Raises DependencyDownError."""
    flat = await link.command("HGETALL", key)
    return {name.decode(): value for name, value in zip(flat[::2], flat[1::2], strict=True)}


async def read_page(
    *,
    cells: Sequence[Cell],
    step: Step,
    read: Callable[[Cell, str], Awaitable[T | None]],
    page_token: str,
    page_size: int,
) -> tuple[list[T], str]:
    """Reads about `page_size` records, in no order. Returns them and the token of the next page.

    A record that exists throughout the listing is on one of the pages, unless its cell is away: a
    list over several cells leaves that out.

    Args:
        cells: all that may have such records, always in the same order.
        step: finds ids, as `ids_of_members` does.
        read: reads the record of an id; None if it is gone or filtered out.
        page_token: from the previous page; "" for the first page.
        page_size: 0 for the default.

    Raises:
        DependencyDownError: no cell can be used.
        InvalidMessageError: the token is from a list over more cells.
    """
    position, found = Position.of_token(page_token, len(cells)), dict[str, T]()
    for _ in range(_STEPS_A_PAGE):
        cell = cells[position.at]
        try:
            cursor, ids = await step(cell, position.cursor)
            for at in range(0, len(ids), _RECORDS_AT_ONCE):
                some = ids[at : at + _RECORDS_AT_ONCE]
                records = await asyncio.gather(*(read(cell, each) for each in some))
                for each, record in zip(some, records, strict=True):
                    if record is not None:
                        found[each] = record
        except DependencyDownError:
            if len(cells) == 1 or not any(each.up for each in cells):
                raise
            cursor = "0"
        position = position.after(cursor)
        if position.at == len(cells) or len(found) >= (page_size or PAGE):
            break
    return list(found.values()), position.token(len(cells))


def ids_of_members(key: str, page_size: int) -> Step:
    """Scans the members of the sorted set `<prefix>:<key>`, about a page at a time."""

    async def step(cell: Cell, cursor: str) -> tuple[str, list[str]]:
        following, flat = await cell.link.command(
            "ZSCAN", f"{cell.prefix}:{key}", cursor, "COUNT", page_size or PAGE
        )
        return following.decode(), [member.decode() for member in flat[::2]]

    return step
