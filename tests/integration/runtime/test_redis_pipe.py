"""Private parts of redis-py are as expected, and are refused if they are not.

test_redis_link.py runs with these parts and without.
"""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import uvloop

from lingua_scheduler.services.runtime.redis.direct_pipe import DirectPipe, UnexpectedPartsError
from lingua_scheduler.services.runtime.redis.embedded.server import EmbeddedRedis
from lingua_scheduler.services.runtime.redis.link import RedisLink
from lingua_scheduler.services.runtime.redis.primary import new_wire
from lingua_scheduler.services.runtime.settings.redis_url import parse_redis_url


@pytest.mark.parametrize("loop_of", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("unix_socket", [False, True])
def test_the_direct_way_fits_this_version_of_redis_py(
    loop_of: Callable[[], asyncio.AbstractEventLoop],
    unix_socket: bool,
    prefix: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def call(url: str) -> Any:
        link = RedisLink(url=url, prefix=prefix, scripts={"echo": "return ARGV[1]"})
        await link.open()
        try:
            return await link.call("echo", "said")
        finally:
            await link.close()

    with (
        EmbeddedRedis(unix_socket=unix_socket) as server,
        asyncio.Runner(loop_factory=loop_of) as r,
    ):
        assert r.run(call(server.url)) == b"said"
    assert not caplog.records


async def test_parts_that_are_not_as_expected_are_refused(own_redis: EmbeddedRedis) -> None:
    def fails(connection: Any) -> None:
        with pytest.raises(UnexpectedPartsError):
            DirectPipe(connection)

    target = parse_redis_url(own_redis.url)
    connection: Any = new_wire(target, target.seeds[0])
    fails(connection)  # it is not connected
    await connection.connect()
    try:
        parser, writer = connection._parser, connection._writer
        connection._parser = object()
        fails(connection)
        connection._parser = SimpleNamespace(_reader=object())
        fails(connection)
        connection._parser, connection._writer = parser, SimpleNamespace(transport=object())
        fails(connection)
        connection._writer = writer
        DirectPipe(connection)
    finally:
        await connection.disconnect()
