"""The key prefixes of cells, with hash tags that spread cells evenly over the masters."""

import re
from functools import cache

from lingua_scheduler.services.runtime.settings.redis_url import slot_of

_SLOTS = 16384
# Cells are placed in these twelfths of the slots, over and over. So 12 cells, or a multiple of
# that, are even over 2, 3, 4, 6 and 12 masters with equal shares of the slots, and 2, 3, 4, 6 and 8
# cells are as even as they can be.
_TWELFTHS = (0, 6, 9, 3, 4, 10, 1, 7, 8, 2, 11, 5)
_TAG = re.compile(r"\{[^{}]+\}")


@cache
def tag(cell: int) -> str:
    """The hash tag of a cell. It never changes, because all keys of the cell have it."""
    twelfth = _TWELFTHS[cell % 12]
    low, high = twelfth * _SLOTS // 12, (twelfth + 1) * _SLOTS // 12
    candidates = (f"c{cell}" if n == 0 else f"c{cell}.{n}" for n in range(_SLOTS))
    return next(each for each in candidates if low <= slot_of(each) < high)


def cell_prefix(prefix: str, cell: int, *, is_cluster: bool) -> str:
    """The prefix of a cell's keys.

    Cell 0 has the configured prefix, so that a deployment with one cell keeps its keys if cells are
    added; on a Redis Cluster only if the prefix has a hash tag.
    """
    tagged = _TAG.search(prefix)
    if cell == 0 and (tagged or not is_cluster):
        return prefix
    own = f"{{{tag(cell)}}}"
    return prefix.replace(tagged[0], own) if tagged else f"{prefix}:{own}"
