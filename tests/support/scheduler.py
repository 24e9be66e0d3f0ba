"""A whole scheduler as processes, each of which a test can kill."""

import uuid
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from tests.support.all_in_one import AllInOneProcess
from tests.support.node_process import NodeProcess
from tests.support.records import Record
from tests.support.services import (
    DispatcherProcess,
    GatewayProcess,
    PoolProcess,
    ServiceProcess,
    addresses,
    start_all,
)

# A word lasts longer than a hangover, so that no chunk is late. Silence becomes a pause soon, but
# not sooner than a busy machine may take to send a word.
SETTINGS: dict[str, str | int] = {
    "pause_ms": 800,
    "max_duration_ms": 1500,
    "hangover_manual_ms": 50,
    "hangover_auto_ms": 50,
    "short_merge_ms": 50,
    "node_heartbeat_ms": 500,
    "heartbeat_batch_ms": 200,
    "node_reconnect_grace_ms": 2000,
    "job_timeout_ms": 10_000,
    "running_lease_ms": 15_000,
    # A busy machine is no reason for these tests to fail.
    "queue_wait_ms": 10_000,
    "affinity_wait_ms": 5000,
    "affinity_away_ms": 5000,
    "ack_timeout_ms": 6000,
    "reservation_ttl_ms": 8000,
    "redis_timeout_ms": 4000,
}


class Scheduler:
    """Some instances of each service, and nodes. A context manager.

    Args:
        redis_url: of its Redis, in which it has a prefix of its own.
        instances: of each service.
        split: whether each service has a process of its own; otherwise one has one of each.
        tag: a hash tag for the prefix, which a Redis Cluster needs.
        settings: fields of Settings, for all services.
    """

    def __init__(
        self,
        *,
        redis_url: str,
        instances: int = 1,
        split: bool = True,
        tag: str = "",
        **settings: str | int,
    ) -> None:
        self.prefix = f"test:{uuid.uuid4().hex[:8]}" + (f":{{{tag}}}" if tag else "")
        self.pools: list[ServiceProcess] = []
        self.dispatchers: list[ServiceProcess] = []
        self.gateways: list[ServiceProcess] = []
        self.nodes: list[NodeProcess] = []
        self.all_in_one: list[AllInOneProcess] = []
        """The processes, unless services have their own."""
        self._redis_url = redis_url
        self._instances = instances
        self._split = split
        self._settings: dict[str, Any] = {**SETTINGS, **settings}

    def __enter__(self) -> Self:
        try:
            if self._split:
                self._start_split(self.prefix)
            else:
                self._start_all_in_one(self.prefix)
        except BaseException:
            self.stop()
            raise
        return self

    def _start_split(self, prefix: str) -> None:
        each, settings = range(self._instances), self._settings
        self.pools += [
            PoolProcess(redis_url=self._redis_url, prefix=prefix, **settings) for _ in each
        ]
        start_all(self.pools)
        to = {"pool": self.pools[0], "pool_address": addresses(self.pools)}
        self.dispatchers += [
            DispatcherProcess(redis_url=self._redis_url, **to, **settings) for _ in each
        ]
        start_all(self.dispatchers)
        self.gateways += [self._gateway() for _ in each]
        start_all(self.gateways)

    def _start_all_in_one(self, prefix: str) -> None:
        for _ in range(self._instances):
            made = AllInOneProcess(redis_url=self._redis_url, prefix=prefix, **self._settings)
            self.all_in_one.append(made)
            self.pools.append(made.pool)
            self.dispatchers.append(made.dispatcher)
            self.gateways.append(made.gateway)
        start_all(self.all_in_one)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def services(self) -> list[ServiceProcess]:
        """The processes of all services."""
        return [*self.pools, *self.dispatchers, *self.gateways]

    def add_gateway(self, **settings: str | int) -> GatewayProcess:
        """Starts one more gateway, with settings of its own."""
        gateway = self._gateway(**settings)
        self.gateways.append(gateway)
        start_all([gateway])
        return gateway

    def add_nodes(
        self, dispatchers: Sequence[str], *, ids: Sequence[str] = (), **options: int
    ) -> list[NodeProcess]:
        """Starts a node for each of these lists of addresses; returns when all are connected."""
        ids = ids or [f"n{len(self.nodes) + at}" for at in range(len(dispatchers))]
        new = [
            NodeProcess(node_id, dispatchers=to, **options)
            for node_id, to in zip(ids, dispatchers, strict=True)
        ]
        self.nodes += new
        for node in new:
            node.start()
        for node in new:
            node.wait_ready()
        return new

    def told(self, *what: str) -> list[Record]:
        """The records of all nodes, with the id of the node in `node`."""
        return [{**each, "node": node.node_id} for node in self.nodes for each in node.told(*what)]

    async def total(self, services: Sequence[ServiceProcess], name: str, **labels: str) -> float:
        """The sum of a metric over several services."""
        return sum([await each.metric(name, **labels) for each in services])

    def check_logs(self) -> None:
        """Fails if the log of a service tells of a bug."""
        for each in self.services:
            assert not each.faults(), f"{each.title} at {each.address}:\n{each.log()}"

    def stop(self) -> None:
        """Kills all processes."""
        for node in self.nodes:
            node.stop()
        for service in reversed(self.services):
            service.stop()

    def _gateway(self, **settings: str | int) -> GatewayProcess:
        return GatewayProcess(
            pool=self.pools[0],
            redis_url=self._redis_url,
            dispatchers=addresses(self.dispatchers),
            **{**self._settings, **settings},
        )
