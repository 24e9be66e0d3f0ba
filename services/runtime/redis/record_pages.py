"""Lists records in pages, for people and tools. Each record has a key of its own."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from lingua_scheduler.services.runtime.redis.link import RedisLink

PAGE = 100
# Steps after which a page is returned even if it is not full.
_STEPS_A_PAGE = 20
# Records read at the same time, so that other calls do not wait long behind them.
_RECORDS_AT_ONCE = 64

Record = Mapping[str, bytes]
T = TypeVar("T")
# One step of a scan: from a cursor ("0" at the beginning) to the next cursor ("0" at the end).
Step = Callable[[str], Awaitable[tuple[str, list[str]]]]


async def read_record(link: RedisLink, key: str) -> Record:
    """The hash under a key; empty if there is none. Raises DependencyDownError."""
    flat = await link.command("HGETALL", key)
    return {name.decode(): value for name, value in zip(flat[::2], flat[1::2], strict=True)}


async def read_page(
    *,
    step: Step,
    read: Callable[[str], Awaitable[T | None]],
    page_token: str,
    page_size: int,
) -> tuple[list[T], str]:
    """Reads about `page_size` records, in no order. Returns them and the token of the next page.

    A record that exists throughout the listing is on one of the pages.

    Args:
        step: finds ids, as `ids_of_members` does.
        read: reads the record of an id; None if it is gone or filtered out.
        page_token: from the previous page; "" for the first page.
        page_size: 0 for the default.

    Raises:
        DependencyDownError: Redis cannot be used.
    """
    cursor, found = page_token or "0", dict[str, T]()
    for _ in range(_STEPS_A_PAGE):
        cursor, ids = await step(cursor)
        for at in range(0, len(ids), _RECORDS_AT_ONCE):
            some = ids[at : at + _RECORDS_AT_ONCE]
            records = await asyncio.gather(*map(read, some))
            for each, record in zip(some, records, strict=True):
                if record is not None:
                    found[each] = record
        if cursor == "0" or len(found) >= (page_size or PAGE):
            break
    return list(found.values()), "" if cursor == "0" else cursor


def ids_of_members(link: RedisLink, key: str, page_size: int) -> Step:
    """Scans the members of a sorted set, about a page at a time."""

    async def step(cursor: str) -> tuple[str, list[str]]:
        following, flat = await link.command("ZSCAN", key, cursor, "COUNT", page_size or PAGE)
        return following.decode(), [member.decode() for member in flat[::2]]

    return step
