"""A scheduler with a console: services, console and nodes, all of them real."""

from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self

from tests.browser.console.background import Background
from tests.support.console import FollowingConsole
from tests.support.raw_client import RawClient, raw_client
from tests.support.scene import Scene, scene
from tests.support.scheduler import Scheduler
from tests.support.services import (
    DispatcherProcess,
    GatewayProcess,
    PoolProcess,
    ServiceProcess,
    addresses,
    start_all,
)

# Nodes that are only registered send no heartbeats, and jobs of these tests wait for the test.
SETTINGS: dict[str, str | int] = {
    "heartbeat_stale_ms": 3_600_000,
    "node_forget_ms": 7_200_000,
    "result_deadline_ms": 60_000,
    "job_timeout_ms": 60_000,
    "running_lease_ms": 120_000,
    "node_reconnect_grace_ms": 300,
    "pause_ms": 300,
    "max_duration_ms": 60_000,
    "hangover_manual_ms": 0,
    "hangover_auto_ms": 0,
}
# Instances announce themselves every 2 s; by default they are down after 15 s.
DOWN_AFTER_MS = 5000
ODD_RETRIES = 4
"""The setting `max_retry` of the second dispatcher, which differs."""


class ConsoleScheduler(Scheduler):
    """One pool service, two dispatchers with different settings, one gateway, one console.

    Args:
        redis_url: of its Redis.
        console: settings of the console alone.
        settings: of everything.
    """

    def __init__(
        self,
        *,
        redis_url: str,
        console: dict[str, Any] | None = None,
        **settings: str | int,
    ) -> None:
        super().__init__(redis_url=redis_url, **{**SETTINGS, **settings})
        self.background = Background()
        self._own = console or {}
        self._open = AsyncExitStack()
        self.console: FollowingConsole

    def _start_split(self, prefix: str) -> None:
        url, settings = self._redis_url, self._settings
        limits = {"fleet.instances._DOWN_AFTER_MS": DOWN_AFTER_MS}
        pool = PoolProcess(
            redis_url=url, prefix=prefix, limits=limits, instance_id="pool-1", **settings
        )
        self.pools.append(pool)
        start_all(self.pools)
        self.dispatchers += [
            self._dispatcher(instance_id="dispatcher-1"),
            self._dispatcher(instance_id="dispatcher-2", max_retry=ODD_RETRIES),
        ]
        start_all(self.dispatchers)
        self.gateways.append(self._gateway(instance_id="gateway-1"))
        start_all(self.gateways)
        self.console = FollowingConsole(
            pool_address=pool.address,
            dispatcher_address=addresses(self.dispatchers),
            gateway_address=addresses(self.gateways),
            **{**settings, "instance_id": "console-1", **self._own},
        )
        start_all([self.console])

    def add_dispatcher(self, **settings: str | int) -> DispatcherProcess:
        """Starts one more dispatcher, with settings of its own."""
        dispatcher = self._dispatcher(**settings)
        self.dispatchers.append(dispatcher)
        start_all([dispatcher])
        return dispatcher

    def _dispatcher(self, **settings: str | int) -> DispatcherProcess:
        both = {**self._settings, **settings}
        return DispatcherProcess(redis_url=self._redis_url, pool=self.pool, **both)

    @property
    def pool(self) -> PoolProcess:
        """The pool service."""
        (pool,) = self.pools
        assert isinstance(pool, PoolProcess)
        return pool

    @property
    def gateway(self) -> GatewayProcess:
        """The gateway of all sessions."""
        gateway = self.gateways[0]
        assert isinstance(gateway, GatewayProcess)
        return gateway

    @property
    def url(self) -> str:
        """Where the console is."""
        return self.console.url

    def scene(self) -> Scene:
        """Languages, nodes and jobs that no other test has, at the first dispatcher."""
        dispatcher = self.dispatchers[0]
        assert isinstance(dispatcher, DispatcherProcess)
        return self.enter(scene(dispatcher, self.pool))

    def submit(self, scene: Scene, *indexes: int) -> list[str]:
        """Submits jobs of a scene to its dispatcher; returns their ids."""
        gateway = self.background.call(scene.gateway)
        return [self.run(gateway.submit(scene.spec(index))) for index in indexes]

    def client(self) -> RawClient:
        """A client of the gateway."""
        return self.enter(raw_client(self.gateway.address))

    def enter(self, manager: Any) -> Any:
        """Enters an async context manager, which is left at the end."""
        return self.background.run(self._open.enter_async_context(manager))

    def run(self, work: Any) -> Any:
        """What a coroutine returns that uses nodes, gateways or clients."""
        return self.background.run(work)

    @property
    def services(self) -> list[ServiceProcess]:
        """The processes of all services, and the console."""
        console = [self.console] if hasattr(self, "console") else []
        return [*super().services, *console]

    def __enter__(self) -> Self:
        self.background.__enter__()
        return super().__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.background.run(self._open.aclose())
        finally:
            self.background.__exit__(kind, error, traceback)
            super().__exit__(kind, error, traceback)
