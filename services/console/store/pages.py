"""One page of many things, in order."""

from collections.abc import Callable, Sequence
from heapq import nlargest, nsmallest
from typing import Any, TypeVar

Item = TypeVar("Item")

# A heap finds the first few faster than sorting does. For a page further back it is slower.
_HEAP_SHARE = 10


def page_of(
    found: Sequence[Item], *, key: Callable[[Item], Any], desc: bool, offset: int, limit: int
) -> Sequence[Item]:
    """The things from `offset` on, at most `limit`, in the order of their keys.

    Args:
        found: all of them.
        key: no two things have the same.
        desc: whether the largest key comes first.
        offset: how many come before the page.
        limit: how many it has at most.
    """
    end = offset + limit
    if offset >= len(found):
        return ()
    if end * _HEAP_SHARE > len(found):
        return sorted(found, key=key, reverse=desc)[offset:end]
    choose = nlargest if desc else nsmallest
    return choose(end, found, key=key)[offset:]
