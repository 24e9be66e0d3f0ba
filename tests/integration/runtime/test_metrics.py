"""The HTTP server for Prometheus, on a real socket."""

import asyncio
import urllib.error
import urllib.request

import pytest
from prometheus_client import Counter

from lingua_scheduler.services.runtime.errors import SettingsError
from lingua_scheduler.services.runtime.telemetry.metrics import MetricsServer, new_registry


async def fetch(address: str) -> str:
    def get() -> str:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as response:
            return str(response.read().decode())

    return await asyncio.to_thread(get)


async def test_metrics_are_served_together_with_those_of_the_process() -> None:
    registry = new_registry()
    Counter("lingua_things", "Things.", registry=registry).inc(3)
    server = MetricsServer(listen="127.0.0.1:0", registry=registry, variable="LINGUA_X")

    text = await fetch(await server.start())
    await server.stop()

    assert "lingua_things_total 3.0" in text
    assert "python_info" in text
    assert "python_gc_objects_collected_total" in text


async def test_two_registries_share_nothing() -> None:
    for count in (1, 2):
        registry = new_registry()
        Counter("lingua_things", "Things.", registry=registry).inc(count)
        assert registry.get_sample_value("lingua_things_total") == count


async def test_an_empty_address_serves_nothing() -> None:
    server = MetricsServer(listen="", registry=new_registry(), variable="LINGUA_X")

    assert await server.start() == ""
    await server.stop()


async def test_after_the_stop_the_address_is_free_again() -> None:
    registry = new_registry()
    first = MetricsServer(listen="127.0.0.1:0", registry=registry, variable="LINGUA_X")
    address = await first.start()
    await first.stop()
    with pytest.raises(urllib.error.URLError):
        await fetch(address)

    second = MetricsServer(listen=address, registry=registry, variable="LINGUA_X")
    assert await second.start() == address
    await second.stop()
    await second.stop()


async def test_the_error_of_an_address_in_use_names_its_variable() -> None:
    registry = new_registry()
    first = MetricsServer(listen="127.0.0.1:0", registry=registry, variable="LINGUA_X")
    address = await first.start()
    second = MetricsServer(listen=address, registry=registry, variable="LINGUA_POOL_METRICS_LISTEN")

    with pytest.raises(SettingsError) as caught:
        await second.start()
    await first.stop()

    assert f"LINGUA_POOL_METRICS_LISTEN='{address}': cannot listen there: " in str(caught.value)
    assert "in use" in str(caught.value)
    await second.stop()


async def test_an_address_of_another_machine_is_refused() -> None:
    # 192.0.2.0/24 is reserved for documentation, so no machine has it.
    server = MetricsServer(listen="192.0.2.1:0", registry=new_registry(), variable="LINGUA_X")

    with pytest.raises(SettingsError, match=r"LINGUA_X='192\.0\.2\.1:0': cannot listen there"):
        await server.start()
