"""Whether the pool service can work: whether any of its cells answers."""

import asyncio
from typing import Any

from lingua_scheduler.services.runtime.redis.cells.cells import Cells


async def reach_any(cells: Cells) -> None:
    """Returns as soon as one cell answers. Raises DependencyDownError if none does."""
    on_servers = {cell.link.server: cell for cell in cells.all}
    left: set[asyncio.Future[Any]] = {
        asyncio.ensure_future(cell.link.command("PING")) for cell in on_servers.values()
    }
    errors: list[BaseException | None] = []
    try:
        while left and None not in errors:
            done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
            errors += [each.exception() for each in done]
    finally:
        for each in left:
            each.cancel()
    if None not in errors:
        raise next(error for error in errors if error is not None)
