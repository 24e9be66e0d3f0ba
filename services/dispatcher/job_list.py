"""Recent jobs and their changes, read from the log that the scripts write (lua/lib/job_log.lua)."""

import time
from typing import Any

from lingua_scheduler.services.dispatcher.job_log import (
    Entry,
    Filter,
    PageOfJobs,
    Position,
    end_of,
    entry_of,
    is_latest,
    position_in_log,
    position_of,
)
from lingua_scheduler.services.dispatcher.views import JobViews
from lingua_scheduler.services.runtime.redis.link import RedisLink
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.v1 import dispatcher_pb2

_PAGE = 100
# Entries that one command reads: about half a millisecond of Redis time.
_ENTRIES_A_STEP = 1000
# Limits of the work for one page; a page that reaches them is shorter than asked for.
_STEPS_A_PAGE = 5
_RECORDS_A_PAGE = 2000
# Records read at the same time, so that other calls do not wait long behind them.
_RECORDS_AT_ONCE = 64
# The id of an entry may be a little earlier or later than the time of its change.
_ID_APART_MS = 1000


class JobList:
    """Reads the log of job changes."""

    def __init__(self, *, link: RedisLink, views: JobViews, settings: Settings) -> None:
        self._link = link
        self._views = views
        self._key = f"{settings.redis_prefix}:jobs:log"

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
        found = await self._link.command(
            "XREVRANGE", self._key, newest, oldest, "COUNT", _ENTRIES_A_STEP
        )
        is_rest = len(found) < _ENTRIES_A_STEP
        last = None if is_rest else position_in_log(found[-1][0])
        return [entry for raw in found if (entry := entry_of(raw))], last

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
        found = await self._forwards(after, most + 1)
        gap = after is not None and await self._has_gap(after, is_end=not found)
        if gap and not found:
            after, found = None, await self._forwards(None, most + 1)
        more, found = len(found) > most, found[:most]
        position = position_in_log(found[-1][0]) if found else after
        return dispatcher_pb2.ListJobChangesResponse(
            changes=[entry.change() for raw in found if (entry := entry_of(raw))],
            cursor=position.token if position else "0",
            more=more,
            gap=gap,
        )

    async def _has_gap(self, after: Position, *, is_end: bool) -> bool:
        """Whether entries after a position may be gone. is_end: there are none after it now."""
        if is_end:
            # A log that ends before the position is another one: Redis has lost data.
            last = await self._link.command("XREVRANGE", self._key, "+", "-", "COUNT", 1)
            return bool(last) and position_in_log(last[0][0]).ms < after.ms
        # Read after the entries themselves: what is trimmed in between counts as gone. If the entry
        # at the position was trimmed, those that followed it may have been.
        first = await self._link.command("XRANGE", self._key, "-", "+", "COUNT", 1)
        return not first or position_in_log(first[0][0]) > after

    async def _forwards(self, after: Position | None, most: int) -> list[Any]:
        oldest = f"({after}" if after else "-"
        found: list[Any] = await self._link.command("XRANGE", self._key, oldest, "+", "COUNT", most)
        return found
