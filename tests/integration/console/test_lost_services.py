"""The console while services restart."""

import asyncio
import socket
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from lingua_scheduler.services.console.documents.backend import Backend
from lingua_scheduler.services.runtime.settings.settings import load_settings
from tests.support.console_backend import following
from tests.support.pool_client import allocation, connected
from tests.support.process import environment
from tests.support.services import DispatcherProcess, PoolProcess
from tests.unit.console.messages import change

# Time limit of calls in tests with services that never answer.
CALL_S = 0.5


@asynccontextmanager
async def frozen_services() -> AsyncIterator[Backend]:
    """A console whose services accept connections and never say anything."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        names = ("pool_address", "dispatcher_address", "gateway_address")
        settings = load_settings(environment(**dict.fromkeys(names, address)))
        backend = Backend.of(settings, timeout_s=CALL_S)
        try:
            yield backend
        finally:
            await backend.close()


async def test_a_session_with_many_utterances_waits_for_a_frozen_dispatcher_once() -> None:
    async with frozen_services() as backend:
        for number in range(100):
            backend.sources.jobs.apply(change(f"j{number}", utterance_index=number))
        began = time.monotonic()
        document = await backend.documents.get("sessions/s1", {"limit": "100"})
        assert document["utterances"]["total"] == 100
        assert len(document["utterances"]["rows"]) == 100
        assert time.monotonic() - began < 8 * CALL_S


async def test_readers_of_settings_do_not_wait_for_a_frozen_pool_service_one_by_one() -> None:
    async with frozen_services() as backend:
        began = time.monotonic()
        readers = (backend.documents.get("instances", {}) for _ in range(20))
        for document in await asyncio.gather(*readers):
            assert document["total"] == 0
        assert time.monotonic() - began < 8 * CALL_S


async def test_a_job_whose_dispatcher_is_gone_does_not_stay_active(redis_url: str) -> None:
    short = {
        "job_timeout_ms": 100,
        "reservation_ttl_ms": 2000,
        "redis_timeout_ms": 1900,
        "ack_timeout_ms": 100,
    }
    pool_process = PoolProcess(redis_url=redis_url, prefix=f"test:{uuid.uuid4().hex[:8]}")
    with pool_process:
        dispatcher = DispatcherProcess(pool=pool_process, redis_url=redis_url, **short)
        with dispatcher:
            async with (
                connected(pool_process, redis_url) as pool,
                following(
                    pool_address=pool_process.address,
                    dispatcher_address=dispatcher.address,
                    **short,
                ) as console,
            ):
                await pool.register("n1")
                for job_id in ("abandoned", "forgotten"):
                    await pool.stub.Allocate(allocation(job_id, home_instance="dispatcher-0"))
                pool.store.delete(f"{pool.prefix}:job:forgotten")
                page = await console.until("jobs", lambda each: each["counts"]["failed"] == 2)
                assert page["counts"]["active"] == 0
                assert page["rows"]["abandoned"]["error"] == "JOB_FAILED"
                assert page["rows"]["forgotten"]["error"] == "JOB_NOT_FOUND"


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
