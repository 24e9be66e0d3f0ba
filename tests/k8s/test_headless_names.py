"""A name of a headless Service, to our channels: they spread over its pods and find new ones.

The name server is the test's own, the pods are servers on one port of several loopback addresses.
"""

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from lingua_scheduler.services.runtime.rpc.channels import channel_options
from lingua_scheduler.services.runtime.settings.settings import Settings
from tests.support.name_server import NameServer, name_server

WITHIN_S = 20.0

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="needs all of 127.0.0.0/8, which only Linux listens on"
)


class Service:
    """The pods behind one name, and a client with a channel as our services have it."""

    def __init__(self, names: NameServer) -> None:
        self._names = names
        self._port = 0
        self._pods: dict[str, grpc.aio.Server] = {}
        self._asked: Counter[str] = Counter()
        self._channel: grpc.aio.Channel | None = None

    async def add(self, address: str) -> None:
        """One more pod, which is ready."""

        class Pod(health_pb2_grpc.HealthServicer):
            async def Check(pod, request: Any, context: Any) -> Any:  # noqa: N802, N805
                self._asked[address] += 1
                return health_pb2.HealthCheckResponse()

        server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
        health_pb2_grpc.add_HealthServicer_to_server(Pod(), server)
        self._port = server.add_insecure_port(f"{address}:{self._port}")
        await server.start()
        self._pods[address] = server
        self._names.ready.append(address)

    async def remove(self, address: str) -> None:
        """A pod ends; its name is taken off first."""
        self._names.ready.remove(address)
        await self._pods.pop(address).stop(None)

    async def answering(self) -> set[str]:
        """The pods that answer some calls in a row."""
        if self._channel is None:
            target = self._names.target("lingua-pool.test", self._port)
            self._channel = grpc.aio.insecure_channel(target, options=channel_options(Settings()))
        check = health_pb2_grpc.HealthStub(self._channel).Check
        self._asked.clear()
        for _ in range(12):
            await check(health_pb2.HealthCheckRequest(), wait_for_ready=True, timeout=WITHIN_S)
        return set(self._asked)

    async def becomes(self, addresses: set[str]) -> None:
        """Returns when these pods answer, and no others."""
        async with asyncio.timeout(WITHIN_S):
            while await self.answering() != addresses:
                pass

    async def close(self) -> None:
        if self._channel is not None:
            await self._channel.close()
        for server in self._pods.values():
            await server.stop(None)


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    """A name without pods."""
    async with name_server() as names:
        made = Service(names)
        yield made
        await made.close()


async def test_calls_are_spread_over_all_pods_of_a_name(service: Service) -> None:
    pods = {f"127.0.0.{n}" for n in (1, 2, 3)}
    for pod in sorted(pods):
        await service.add(pod)
    await service.becomes(pods)


async def test_the_pod_that_replaces_another_is_found_without_a_failed_call(
    service: Service,
) -> None:
    await service.add("127.0.0.1")
    await service.add("127.0.0.2")
    await service.becomes({"127.0.0.1", "127.0.0.2"})
    await service.add("127.0.0.3")
    await service.remove("127.0.0.2")
    await service.becomes({"127.0.0.1", "127.0.0.3"})


async def test_when_all_pods_have_been_replaced_the_new_ones_are_found(service: Service) -> None:
    await service.add("127.0.0.1")
    await service.becomes({"127.0.0.1"})
    await service.add("127.0.0.2")
    await service.remove("127.0.0.1")
    await service.becomes({"127.0.0.2"})
