"""People who talk in chosen cells, and nodes that live in chosen cells."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence

from lingua_scheduler.services.runtime.contract.cell_names import cell_of_id, ranked
from tests.faults.crowd import Crowd
from tests.support.scheduler import Scheduler
from tests.support.services import addresses
from tests.support.speaker import Speaker, speaking

# Sessions that are opened at a time, in whichever cells.
_AT_ONCE = 12
_TRIES = 40


def cell_of(speaker: Speaker) -> int:
    """The cell in which somebody talks."""
    return cell_of_id(speaker.session.session_id)


def node_in(cell: int, of: Iterable[int]) -> str:
    """The id of a node that will live in this one of these cells."""
    cells = list(of)
    ids = (f"n{cell}-{number}" for number in range(10_000))
    return next(each for each in ids if ranked(each, cells)[0] == cell)


@contextlib.asynccontextmanager
async def talking_in(
    scheduler: Scheduler, cells: Sequence[int], lengths: Sequence[int]
) -> AsyncIterator[Crowd]:
    """As `talking`, with a person in each of these cells, as often as it is named."""
    async with contextlib.AsyncExitStack() as stack:
        crowd = Crowd(await people_in(scheduler, cells, stack), lengths)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(crowd.talk())
            await crowd.hear_more(1)
            yield crowd
            crowd.stop()


async def people_in(
    scheduler: Scheduler, cells: Sequence[int], stack: contextlib.AsyncExitStack
) -> list[Speaker]:
    """Opens sessions, and keeps those that are in these cells."""
    to, wanted = addresses(scheduler.gateways), Counter(cells)
    people: list[Speaker] = []
    for _ in range(_TRIES):
        opening = [contextlib.AsyncExitStack() for _ in range(_AT_ONCE)]
        new = await asyncio.gather(*(each.enter_async_context(speaking(to)) for each in opening))
        for own, speaker in zip(opening, new, strict=True):
            if wanted[cell_of(speaker)] > 0:
                wanted[cell_of(speaker)] -= 1
                people.append(speaker)
                stack.push_async_exit(own)
            else:
                await own.aclose()
        if not +wanted:
            return people
    raise AssertionError(f"no session was ever opened in {+wanted}")
