"""Pages of records that each have a key of their own, for people and tools."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from lingua_scheduler.services.runtime.redis.link import RedisLink

PAGE = 100
# Keys that one step of a scan looks at, at most: about a millisecond of Redis.
_KEYS_A_STEP = 2000
# Steps before a page is given back, full or not.
_STEPS_A_PAGE = 20
# Records asked for at the same time: other calls do not wait long behind them.
_RECORDS_AT_ONCE = 64

Record = Mapping[str, bytes]
T = TypeVar("T")
# One step through ids: from a cursor ("0": the beginning) to the next one ("0": the end).
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
    """About `page_size` records, in no order, and the token of the next page.

    A record that exists from the first page to the last is on one of them. Raises
    DependencyDownError.

    Args:
        step: finds ids, as `ids_of_keys` and `ids_of_members` do.
        read: reads the record of an id; None if it is gone, or not wanted.
        page_token: from the page before; "" for the first.
        page_size: 0 for the usual one.
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


def ids_of_keys(link: RedisLink, prefix: str, page_size: int) -> Step:
    """Steps through the ids of all hashes `<prefix><id>`: through every key that Redis has.

    Ids have no colon: a key with one belongs to something else, and is left out. A step looks at as
    many keys as a page has records, and at more after steps that found few, so that a page is never
    much larger than asked for, and rare records are found soon.
    """
    page = max(page_size, PAGE)
    count = page

    async def step(cursor: str) -> tuple[str, list[str]]:
        nonlocal count
        following, keys = await link.command(
            "SCAN", cursor, "MATCH", f"{prefix}*", "COUNT", count, "TYPE", "hash"
        )
        if len(keys) < page / 4:
            count = min(2 * count, _KEYS_A_STEP)
        ids = (key.decode().removeprefix(prefix) for key in keys)
        return following.decode(), [each for each in ids if ":" not in each]

    return step


def ids_of_members(link: RedisLink, key: str, page_size: int) -> Step:
    """Steps through the members of a sorted set, about a page of them at a time."""

    async def step(cursor: str) -> tuple[str, list[str]]:
        following, flat = await link.command("ZSCAN", key, cursor, "COUNT", page_size or PAGE)
        return following.decode(), [member.decode() for member in flat[::2]]

    return step
