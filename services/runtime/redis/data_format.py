"""The format of what the services keep in Redis, and which releases can use it side by side.

One number stands for all records: what scripts write, and what Python writes through them.
Additions that older releases ignore do not change it; docs/upgrading.md has the rules. Each cell
records the number in the hash `P:format` (lua/announce_instance.lua). A release that cannot read
what is there does not start, nor does one that would write what a running instance cannot read.
"""

from collections.abc import Sequence

from lingua_scheduler.services.runtime.redis.primary import RedisUnfitError, Wire, ask

WRITES = 1
"""The format of what this release writes. The release before it must be able to read it."""
READS_FROM = 1
"""The oldest format that this release reads: at least that of the release before it."""
READS_TO = 1
"""The newest format that this release reads, so that the next release may write it."""


class DataFormatError(RedisUnfitError):
    """This release and the data in Redis, or a running instance, do not fit together."""


async def check_format(wire: Wire, prefixes: Sequence[str]) -> None:
    """Raises DataFormatError if this release cannot read what is under one of the prefixes."""
    asked = (("HMGET", format_key(prefix), "format", "version") for prefix in prefixes)
    for prefix, reply in zip(prefixes, await ask(wire, *asked), strict=True):
        if isinstance(reply, Exception):
            raise reply
        found, by = reply
        if found is not None and not READS_FROM <= int(found) <= READS_TO:
            raise unreadable(prefix, int(found), (by or b"").decode())


def format_key(prefix: str) -> str:
    """The key that has the format of the data under a prefix."""
    return f"{prefix}:format"


def unreadable(prefix: str, found: int, by: str) -> DataFormatError:
    """The data are too new or too old.

    Args:
        prefix: of the data.
        found: their format.
        by: the release that was the first to write it.
    """
    one = READS_FROM == READS_TO
    reads = f"format {READS_TO}" if one else f"formats {READS_FROM} to {READS_TO}"
    start = f"the data in Redis under {prefix} have format {found}, first written by release {by}"
    if found > READS_TO:
        what = f"Run release {by} or a newer one"
    else:
        what = f"Upgrade in steps, with a release between {by} and this one"
    return DataFormatError(
        f"{start}, and this release reads {reads}. {what}, or give this one another "
        "LINGUA_REDIS_PREFIX or an empty Redis (docs/upgrading.md)"
    )


def unread(instance: str, reads: int, by: str) -> DataFormatError:
    """A running instance could not read what this release writes."""
    return DataFormatError(
        f"this release writes data of format {WRITES}, and the running instance {instance} of "
        f"release {by or 'before 0.2.0'} reads format {reads} at most. Upgrade all instances to a "
        "release between the two first (docs/upgrading.md)"
    )
