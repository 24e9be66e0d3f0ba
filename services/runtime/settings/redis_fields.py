"""Settings of the connection to Redis."""

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel

from lingua_scheduler.services.runtime.settings.field_types import field, whole

_PREFIX = re.compile(r"(?=.{1,100}$)[A-Za-z0-9:_.-]*(\{[A-Za-z0-9:_.-]+\})?[A-Za-z0-9:_.-]*(?<!:)")

REDIS_URL_FORMS = (
    "redis://[user:password@]host:6379/0, rediss://... (TLS), unix:///path/to/redis.sock, "
    "redis+sentinel://host:26379,host:26379/<master name>/0, redis+cluster://host:7000,host:7001 "
    "(rediss+sentinel:// and rediss+cluster:// with TLS)"
)


def _redis_url(value: str) -> str:
    if value == "":
        return value
    # Half a second of imports that a command without Redis should not pay for.
    from lingua_scheduler.services.runtime.settings.redis_url import parse_redis_url

    for url in value.split() or [value]:
        parse_redis_url(url)
    return value


def _redis_prefix(value: str) -> str:
    if not _PREFIX.fullmatch(value):
        raise ValueError
    return value


RedisUrl = Annotated[str, AfterValidator(_redis_url)]
RedisPrefix = Annotated[str, AfterValidator(_redis_prefix)]


class RedisFields(BaseModel):
    """The connection to Redis."""

    redis_url: RedisUrl = field(
        "",
        "Redis to use, or one for each cell with spaces between (empty: `lingua up` starts one; a "
        "service alone refuses to start)",
        f"must be empty, one of the following, or one for each cell: {REDIS_URL_FORMS}",
        repr=False,
    )
    redis_prefix: RedisPrefix = field(
        "lingua:v1",
        "prefix of every key; with a hash tag {..}, all keys of a cell share a slot",
        "must be 1 to 100 characters of A-Z a-z 0-9 : _ . -, with at most one hash tag {..} "
        "and no colon at its end",
    )
    cells: int = whole(
        1,
        1,
        1000,
        "parts of the state, each with a key prefix of its own, which may be on different servers",
    )
    cell_tries: int = whole(
        3, 0, 1000, "other cells in which a job looks for a node, if its own has none with room"
    )
    redis_timeout_ms: int = whole(400, 10, 5000, "ms after which a call to Redis fails")
    redis_dir: str = field(
        "", "folder for the data of the Redis that `lingua up` starts (empty: temporary)", "a path"
    )
