"""The scripts on a real Redis and a clock of their own."""

from collections.abc import Iterable, Iterator
from itertools import islice

import pytest
import redis

from .scripts import Scripts


@pytest.fixture(scope="session")
def client(redis_url: str) -> Iterator[redis.Redis]:
    """A connection that all tests of a worker share."""
    with redis.Redis.from_url(redis_url, protocol=2) as connection:
        yield connection


@pytest.fixture
def scripts(client: redis.Redis, prefix: str) -> Iterator[Scripts]:
    """The scripts on a prefix of the test's own, which is empty again afterwards."""
    yield Scripts(client, prefix)
    for keys in batched(client.scan_iter(f"{prefix}:*", count=10_000), 1_000):
        client.unlink(*keys)


def batched(keys: Iterable[bytes], size: int) -> Iterator[list[bytes]]:
    """The keys, so many at a time."""
    rest = iter(keys)
    while some := list(islice(rest, size)):
        yield some
