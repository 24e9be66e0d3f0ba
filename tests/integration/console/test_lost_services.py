"""The console while services restart."""

import uuid

from tests.support.console_backend import following
from tests.support.pool_client import connected
from tests.support.services import PoolProcess


async def test_the_fleet_is_read_anew_after_the_pool_service_was_away(redis_url: str) -> None:
    process = PoolProcess(redis_url=redis_url, prefix=f"test:{uuid.uuid4().hex[:8]}")
    with process:
        async with (
            connected(process, redis_url) as pool,
            following(pool_address=process.address) as console,
        ):
            await pool.register("n1")
            await pool.register("n2")
            await console.until("nodes", lambda each: each["total"] == 2)
            process.stop()
            away = await console.until(
                "nodes", lambda each: {"fleet", "instances"} <= set(each["problems"])
            )
            # What was known is still shown.
            assert away["total"] == 2
            pool.forget_all()
            process.start()
            process.wait_ready()
            await pool.serves()
            await pool.register("n3")
            back = await console.until("nodes", lambda each: each["order"] == ["n3"])
            assert "fleet" not in back["problems"]
