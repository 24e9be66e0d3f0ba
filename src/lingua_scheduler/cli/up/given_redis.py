"""The Redis of LINGUA_REDIS_URL: waits until it can be used, and describes it."""

import asyncio
import time
from collections.abc import Callable

from redis import Redis
from redis.exceptions import AuthenticationError, RedisError

from lingua_scheduler.cli.failures import UNREACHABLE, USAGE
from lingua_scheduler.cli.up.errors import InterruptedStartError, PartFailedError
from lingua_scheduler.services.runtime.errors import DependencyDownError
from lingua_scheduler.services.runtime.redis.link import RedisLink

# Pause between two attempts to reach it.
AGAIN_S = 0.5


async def await_redis(
    url: str,
    *,
    prefix: str,
    within_s: float,
    on_wait: Callable[[str], None],
    is_interrupted: Callable[[], bool],
) -> None:
    """Return when the Redis is usable.

    Args:
        url: of the Redis.
        prefix: of the keys.
        within_s: time limit.
        on_wait: called with the reason when it has to wait, once.
        is_interrupted: whether to stop waiting.

    Raises:
        SettingsError: it answers, but is unsuitable.
        PartFailedError: it refuses the password, or does not answer in time.
        InterruptedStartError: the wait was interrupted.
    """
    link = RedisLink(url=url, prefix=prefix, scripts={})
    deadline, told = time.monotonic() + within_s, False
    while True:
        try:
            await link.open()
        except DependencyDownError as error:
            refused = isinstance(error.__cause__, AuthenticationError)
            if refused or time.monotonic() >= deadline:
                raise _without_redis(error, refused=refused, within_s=within_s) from error
            if not told:
                told = True
                on_wait(str(error))
        else:
            await link.close()
            return
        if is_interrupted():
            raise InterruptedStartError
        await asyncio.sleep(AGAIN_S)


def server_name(url: str) -> str:
    """Such as `valkey 9.1.2`."""
    try:
        with Redis.from_url(url) as client:
            info = client.info("server")
    except RedisError:
        return "server"
    name = info.get("server_name", "redis")
    return f"{name} {info.get(f'{name}_version', info.get('redis_version', ''))}"


def _without_redis(
    error: DependencyDownError, *, refused: bool, within_s: float
) -> PartFailedError:
    """The failure for a Redis that cannot be used."""
    if refused:
        todo = (
            "The user or password is wrong: write it into LINGUA_REDIS_URL as "
            "redis://USER:PASSWORD@HOST:PORT/0"
        )
    else:
        todo = (
            f"Tried for {within_s:g} s. Start it, or correct LINGUA_REDIS_URL; if that is not set, "
            "'lingua up' starts a Redis of its own"
        )
    exit_code = USAGE if refused else UNREACHABLE
    return PartFailedError(error.message, hint=todo, exit_code=exit_code)
