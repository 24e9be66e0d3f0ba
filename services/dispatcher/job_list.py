"""Recent jobs and their changes, from the logs that the scripts write (lua/lib/job_log.lua)."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, TypeVar

from redis.exceptions import ResponseError

from lingua_scheduler.services.dispatcher.job_log import (
    Entry,
    Filter,
    PageOfJobs,
    Position,
    end_of,
    is_latest,
    position_in_log,
    position_of,
)
from lingua_scheduler.services.dispatcher.merged_log import LogPart, backwards, forwards, part_of
from lingua_scheduler.services.dispatcher.views import JobViews
from lingua_scheduler.services.runtime.contract.cell_names import cell_of_id
from lingua_scheduler.services.runtime.errors import DependencyDownError
from lingua_scheduler.services.runtime.redis.cells.cells import Cell, Cells
from lingua_scheduler.services.runtime.redis.clock import redis_now_ms
from lingua_scheduler.v1 import dispatcher_pb2

_PAGE = 100
# Entries that one command reads: about half a millisecond of Redis time. If there are many cells,
# each is asked for its share, but for no fewer than this: cells differ, and so do their logs.
_ENTRIES_A_STEP = 1000
_LEAST_ENTRIES = 50
# Limits of the work for one page; a page that reaches them is shorter than asked for.
_STEPS_A_PAGE = 5
_RECORDS_A_PAGE = 2000
# Records read at the same time, so that other calls do not wait long behind them.
_RECORDS_AT_ONCE = 64
# The id of an entry may be a little earlier or later than the time of its change.
_ID_APART_MS = 1000

T = TypeVar("T")


class _Read(NamedTuple):
    """What was read of one cell's log, and the time of its Redis before that."""

    cell: Cell
    part: LogPart
    now_ms: int


class JobList:
    """Reads the logs of job changes of all cells as one. A cell that is away is left out."""

    def __init__(self, *, cells: Cells, views: JobViews) -> None:
        self._cells = cells
        self._views = views

    async def page(
        self, request: dispatcher_pb2.ListJobsRequest
    ) -> dispatcher_pb2.ListJobsResponse:
        """A page of jobs, the latest change first. Raises DependencyDownError."""
        quiet_before_ms = time.time() * 1000 - self._views.quiet_ms
        page = PageOfJobs(
            Filter(request, quiet_before_ms=quiet_before_ms),
            size=request.page_size or _PAGE,
            max_records=_RECORDS_A_PAGE,
        )
        before = position_of(request.page_token)
        for _ in range(_STEPS_A_PAGE):
            entries, last = await self._backwards(request, before)
            cut = await self._fill(page, entries)
            before = cut or last
            if cut or not last:
                break
        token = before.token if before else ""
        return dispatcher_pb2.ListJobsResponse(jobs=page.jobs, next_page_token=token)

    async def _backwards(
        self, request: dispatcher_pb2.ListJobsRequest, before: Position | None
    ) -> tuple[list[Entry], Position | None]:
        """The next entries, the newest first, and the last position; None: these are all."""
        newest, to_ms = f"({before}" if before else "+", request.changed_to_ms + _ID_APART_MS
        if request.changed_to_ms and (before is None or to_ms < before.ms):
            newest = str(to_ms)
        oldest = str(max(0, request.changed_from_ms - _ID_APART_MS))
        cells = self._cells_of(request.session_id)
        most = self._share(_ENTRIES_A_STEP, cells)

        async def read(cell: Cell) -> LogPart:
            found = await cell.link.command("XREVRANGE", _key(cell), newest, oldest, "COUNT", most)
            return part_of(found, most)

        found, last = backwards(await self._each(cells, read))
        return [each.entry for each in found if each.entry], last

    async def _fill(self, page: PageOfJobs, entries: list[Entry]) -> Position | None:
        """Adds jobs to a page. Returns the position at which it ends, if it is full."""
        candidates, at = page.candidates(entries), 0
        while at < len(candidates):
            some = page.next_records(candidates, at, _RECORDS_AT_ONCE)
            at += len(some)
            records = await self._views.records([entry.job_id for entry in some])
            latest = [
                job
                for entry, job in zip(some, records, strict=True)
                if job is not None and is_latest(entry, job)
            ]
            await self._views.mark_abandoned(latest)
            page.add(latest)
            if page.is_full:
                return end_of(entries, some[-1])
        return None

    async def changes(
        self, request: dispatcher_pb2.ListJobChangesRequest
    ) -> dispatcher_pb2.ListJobChangesResponse:
        """The changes after a cursor. Raises DependencyDownError."""
        most = request.max_changes or _ENTRIES_A_STEP
        after = position_of(request.cursor)
        reads = await self._forwards(after, most)
        gap = after is not None and await self._has_gap(after, reads)
        if gap and _is_end(reads):
            after, reads = None, await self._forwards(None, most)
        # What a cell adds from now on is later than its clock was. So whatever is earlier than all
        # clocks is complete, and a reader that has passed it misses nothing.
        before_ms = None if self._cells.one else min(read.now_ms for read in reads)
        found, more = forwards([read.part for read in reads], most, before_ms=before_ms)
        position = found[-1].position if found else after
        return dispatcher_pb2.ListJobChangesResponse(
            changes=[each.entry.change() for each in found if each.entry],
            cursor=position.token if position else "0",
            more=more,
            gap=gap,
        )

    async def _forwards(self, after: Position | None, most: int) -> list[_Read]:
        oldest = f"({after}" if after else "-"
        # One more than is returned tells whether there are more.
        count = self._share(most, self._cells.all) + 1

        async def read(cell: Cell) -> _Read:
            now_ms = 0 if self._cells.one else await redis_now_ms(cell.link)
            found = await cell.link.command("XRANGE", _key(cell), oldest, "+", "COUNT", count)
            return _Read(cell, part_of(found, count), now_ms)

        return await self._each(self._cells.all, read)

    async def _has_gap(self, after: Position, reads: Sequence[_Read]) -> bool:
        """Whether entries after a position may be gone. reads: what there is after it now."""
        if _is_end(reads):
            # Logs that all end before the position are others: Redis has lost data.
            lasts = await self._each([read.cell for read in reads], _last)
            ends = [position for position in lasts if position is not None]
            is_all = len(lasts) == len(self._cells.all)
            return is_all and bool(ends) and max(ends).ms < after.ms
        # Read after the entries themselves: what is trimmed in between counts as gone. If the entry
        # at the position was trimmed, those that followed it may have been.
        cells = [read.cell for read in reads if read.part.found]
        return any(await self._each(cells, lambda cell: self._begins_after(cell, after)))

    async def _begins_after(self, cell: Cell, after: Position) -> bool:
        """Whether the beginning of a log that had entries at or before a position is gone."""
        first = await cell.link.command("XRANGE", _key(cell), "-", "+", "COUNT", 1)
        if first and position_in_log(first[0][0]) <= after:
            return False
        # If there are several cells, the position may be from before the first entry of this one.
        return self._cells.one or await _is_trimmed(cell)

    def _cells_of(self, session_id: str) -> Sequence[Cell]:
        """The cells that may have jobs of a session; all if none is given."""
        if self._cells.one or not session_id:
            return self._cells.all
        number = cell_of_id(session_id)
        return [cell for cell in self._cells.all if cell.number == number]

    def _share(self, most: int, cells: Sequence[Cell]) -> int:
        """How many entries are read from each of these cells, if `most` are wanted from all."""
        return min(most, max(most // max(len(cells), 1), _LEAST_ENTRIES))

    async def _each(self, cells: Sequence[Cell], call: Callable[[Cell], Awaitable[T]]) -> list[T]:
        """What the call returns for each of these cells that is not away.

        Raises:
            DependencyDownError: all are away.
        """
        answers = await asyncio.gather(*map(call, cells), return_exceptions=True)
        errors = [each for each in answers if isinstance(each, BaseException)]
        for error in errors:
            if not isinstance(error, DependencyDownError) or len(errors) == len(answers):
                raise error
        return [each for each in answers if not isinstance(each, BaseException)]


def _key(cell: Cell) -> str:
    return f"{cell.prefix}:jobs:log"


def _is_end(reads: Sequence[_Read]) -> bool:
    return not any(read.part.found for read in reads)


async def _last(cell: Cell) -> Position | None:
    last = await cell.link.command("XREVRANGE", _key(cell), "+", "-", "COUNT", 1)
    return position_in_log(last[0][0]) if last else None


async def _is_trimmed(cell: Cell) -> bool:
    """Whether a log has, or may have, lost entries since it began."""
    try:
        flat = await cell.link.command("XINFO", "STREAM", _key(cell))
    except ResponseError:
        return True  # The log is gone.
    about = dict(zip(flat[::2], flat[1::2], strict=True))
    # Redis 6.2 does not count them.
    added = about.get(b"entries-added")
    return added is None or bool(added > about[b"length"])
