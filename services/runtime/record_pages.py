"""Pages of records that each have a key of their own, for people and tools."""

import asyncio
from collections.abc import Callable, Mapping
from typing import TypeVar

from lingua_scheduler.services.runtime.redis_link import RedisLink

PAGE = 100
# Keys that one step of a scan looks at: about a millisecond of Redis.
_KEYS_A_STEP = 2000
# Steps before a page is given back, full or not.
_STEPS_A_PAGE = 20
# Records asked for at the same time: other calls do not wait long behind them.
_RECORDS_AT_ONCE = 64

Record = Mapping[str, bytes]
T = TypeVar("T")


async def read_record(link: RedisLink, key: str) -> Record:
    """The hash under a key; empty where there is none. Raises DependencyDownError."""
    flat = await link.command("HGETALL", key)
    return {name.decode(): value for name, value in zip(flat[::2], flat[1::2], strict=True)}


async def read_page(
    link: RedisLink,
    *,
    prefix: str,
    page_token: str,
    page_size: int,
    read: Callable[[str, Record], T | None],
) -> tuple[list[T], str]:
    """About `page_size` of the hashes `<prefix><id>`, in no order, and the token of the next page.

    A record that is there from the first page to the last is on one of them. Ids have no colon: a
    key with one belongs to something else, and is left out. Raises DependencyDownError.

    Args:
        link: to Redis.
        prefix: of the keys, up to the id.
        page_token: from the page before; "" for the first.
        page_size: 0 for the usual one.
        read: makes of an id and its record what is wanted, or None where it is not.
    """
    cursor, found = page_token or "0", dict[str, T]()
    for _ in range(_STEPS_A_PAGE):
        cursor, ids = await _step(link, prefix, cursor)
        for at in range(0, len(ids), _RECORDS_AT_ONCE):
            some = ids[at : at + _RECORDS_AT_ONCE]
            records = await asyncio.gather(*(read_record(link, prefix + each) for each in some))
            for each, record in zip(some, records, strict=True):
                if record and (made := read(each, record)) is not None:
                    found[each] = made
        if cursor == "0" or len(found) >= (page_size or PAGE):
            break
    return list(found.values()), "" if cursor == "0" else cursor


async def _step(link: RedisLink, prefix: str, cursor: str) -> tuple[str, list[str]]:
    following, keys = await link.command(
        "SCAN", cursor, "MATCH", f"{prefix}*", "COUNT", _KEYS_A_STEP, "TYPE", "hash"
    )
    ids = (key.decode().removeprefix(prefix) for key in keys)
    return following.decode(), [each for each in ids if ":" not in each]
