"""The clock of Redis, which all services share."""

from lingua_scheduler.services.runtime.redis.link import RedisLink


async def redis_now_ms(link: RedisLink) -> int:
    """The time of Redis, in ms since the epoch. Raises DependencyDownError."""
    seconds, micros = await link.command("TIME")
    return int(seconds) * 1000 + int(micros) // 1000
