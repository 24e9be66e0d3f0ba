"""A whole scheduler as processes, with a link of the tests' network between any two of them."""

import os
import signal
import tempfile
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self, TypeVar

from lingua_scheduler.services.runtime.redis.cells.prefixes import cell_prefix
from lingua_scheduler.v1 import pool_pb2
from tests.robustness.leases import known_nodes, leases_left
from tests.robustness.network import Network
from tests.robustness.processes import CLOCK_RUNNER, WorldNode, settings
from tests.robustness.store import SENTINEL, Store, running_store, until
from tests.support.all_in_one import AllInOneProcess, Part
from tests.support.process import Process
from tests.support.services import (
    DispatcherProcess,
    GatewayProcess,
    PoolProcess,
    ServiceProcess,
    start_all,
)

Service = TypeVar("Service", bound=ServiceProcess)

NODES = (3, 2, 2, 1)
"""The slots of each node."""

SPLIT, ALL, CELLS = "split", "all", "cells"
TOPOLOGIES = {SPLIT: 2, ALL: 3, CELLS: 2}
"""How many instances of each service there are if each has a process of its own, if one process has
one of each, and if each has its own and their state is in cells on two servers."""

# On two servers in turn, so that each has several.
_CELLS = 4
_SERVERS = 2


class World:
    """Some instances of each service, some nodes, and a Redis. A context manager.

    Args:
        store: what kind of Redis, see store.py.
        topology: SPLIT, ALL or CELLS.
        instances: of each service; 0: as many as the topology has.
        nodes: slots of each node.
        options: settings of all services.

    Attributes:
        services: each instance of a service by name, such as "gateway-0".
        hosts: the processes that run them, by name: the services themselves, or "all-0" and so on.
        nodes: the nodes by name.
        stores: the Redis of each server, in turn that of each cell; `store` is the first.
    """

    def __init__(
        self,
        store: str,
        *,
        topology: str = SPLIT,
        instances: int = 0,
        nodes: tuple[int, ...] = NODES,
        **options: Any,
    ) -> None:
        self.topology = topology
        self.services: dict[str, ServiceProcess] = {}
        self.hosts: dict[str, ServiceProcess] = {}
        self.nodes = {f"node-{at}": WorldNode(f"node-{at}", slots=n) for at, n in enumerate(nodes)}
        self.network = Network()
        self.stores: list[Store] = []
        self.prefix = f"test:{uuid.uuid4().hex[:8]}"
        self._kind = store
        self._instances = instances or TOPOLOGIES[topology]
        if topology == CELLS:
            options = {"cells": _CELLS, **options}
        self._cells = int(options.get("cells") or os.environ.get("LINGUA_CELLS", 1))
        self._settings = settings(**options)
        self._stack = ExitStack()
        self._logged: dict[str, int] = {}
        self._tasks = Path()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self.network)
            made = stack.enter_context(tempfile.TemporaryDirectory(prefix="lingua-tasks-"))
            self._tasks = Path(made)
            servers = range(_SERVERS if self.topology == CELLS else 1)
            self.stores = [stack.enter_context(running_store(self._kind)) for _ in servers]
            stack.callback(self._stop)
            self._start()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    # ---- looking ----

    @property
    def store(self) -> Store:
        """The Redis of the first cell, or of all."""
        return self.stores[0]

    def store_of(self, cell: int) -> Store:
        """The Redis of a cell."""
        return self.stores[cell % len(self.stores)]

    def prefixes(self, store: Store) -> list[str]:
        """The prefixes of the cells that a Redis has."""
        cells = [cell for cell in range(self._cells) if self.store_of(cell) is store]
        return [cell_prefix(self.prefix, cell, is_cluster=False) for cell in cells]

    @property
    def processes(self) -> dict[str, Process]:
        """All processes by name, such as "gateway-0", "all-0" or "node-0"."""
        return {**self.hosts, **self.nodes}

    def of(self, kind: str) -> list[str]:
        """The names of a kind of services or processes: gateway, dispatcher, pool, all or node."""
        names = dict.fromkeys([*self.services, *self.processes])
        return [name for name in names if name.startswith(f"{kind}-")]

    def watched(self) -> dict[str, tuple[str, int]]:
        """Where to ask for the health of each process that runs services, and its id."""
        return {
            name: (
                host.gateway.address if isinstance(host, AllInOneProcess) else host.address,
                host.process.pid,
            )
            for name, host in self.hosts.items()
        }

    @property
    def gateways(self) -> str:
        """The addresses that clients connect to."""
        return self._way("clients", "gateway")

    @property
    def web_gateways(self) -> list[str]:
        """The addresses that clients in JavaScript connect to."""
        return self._way("clients-web", "gateway").split(",")

    @property
    def web_addresses(self) -> dict[str, str]:
        """Where the gateways themselves serve browsers, by name."""
        gateways = {name: self.services[name] for name in self.of("gateway")}
        return {
            name: gateway.web_address
            for name, gateway in gateways.items()
            if isinstance(gateway, GatewayProcess | Part)
        }

    async def known_nodes(self) -> list[pool_pb2.Node]:
        """All nodes, as the pool service sees them."""
        return await known_nodes(self._pool_address)

    async def leases_left(self, within: float) -> list[str]:
        """Waits until no slot is in use; returns what still is after `within` seconds."""
        return await leases_left(self._pool_address, within)

    @property
    def _pool_address(self) -> str:
        return next(self.services[name].address for name in self.of("pool"))

    def new_faults(self) -> list[str]:
        """Lines of the services' logs that only a bug writes, since they were asked for last."""
        found = []
        for name, host in self.hosts.items():
            lines = host.faults()
            found += [f"{name}: {line}" for line in lines[self._logged.get(name, 0) :]]
            self._logged[name] = len(lines)
        return found

    def logs(self) -> dict[str, str]:
        """What each process has written to stderr, by name."""
        return {name: process.log() for name, process in self.processes.items()}

    def tasks(self, name: str) -> int:
        """The number of asyncio tasks that a process has."""
        process = self.hosts[name].process
        told = self._tasks / str(process.pid)
        told.unlink(missing_ok=True)
        process.send_signal(signal.SIGUSR1)
        until(lambda: told.exists() and told.read_text() != "", 10)
        return int(told.read_text())

    async def all_up(self) -> None:
        """Restarts ended processes, heals the network, and clears the orders of all nodes."""
        self.network.heal()
        for process in self.processes.values():
            if process.process.poll() is not None:
                await process.restart()
        for node in self.nodes.values():
            node.order()

    # ---- making ----

    def _start(self) -> None:
        if self.topology == ALL:
            self._start_all_in_one()
        else:
            self._start_split()
        self._links("clients", "gateway")
        for name, address in self.web_addresses.items():
            self.network.link("clients-web", name, address)
        for name, node in self.nodes.items():
            node.dispatchers = self._links(name, "dispatcher")
            node.start()
        for node in self.nodes.values():
            node.wait_ready()

    def _start_all_in_one(self) -> None:
        made = []
        for at in range(self._instances):
            relay = self.network.link("dispatchers", f"dispatcher-{at}")
            own = {"prefix": self.prefix, "dispatcher_advertise": relay.address}
            host = self._host(f"all-{at}", AllInOneProcess, **own)
            self.services |= {f"{part.service}-{at}": part for part in host.parts}
            made.append(host)
        start_all(made)
        for at, each in enumerate(made):
            self.network.links[f"dispatchers>dispatcher-{at}"].target = each.dispatcher.address

    def _start_split(self) -> None:
        pools = [
            self._add(f"pool-{at}", PoolProcess, prefix=self.prefix)
            for at in range(self._instances)
        ]
        start_all(pools)
        pool = pools[0]
        made = []
        for at in range(self._instances):
            name = f"dispatcher-{at}"
            relay = self.network.link("dispatchers", name)
            to = {
                "pool_address": self._links(name, "pool"),
                "dispatcher_advertise": relay.address,
            }
            made.append(self._add(name, DispatcherProcess, pool=pool, **to))
        start_all(made)
        for at, each in enumerate(made):
            self.network.links[f"dispatchers>dispatcher-{at}"].target = each.address
        made = []
        for at in range(self._instances):
            name = f"gateway-{at}"
            dispatchers = self._links(name, "dispatcher")
            made.append(self._add(name, GatewayProcess, pool=pool, dispatchers=dispatchers))
        start_all(made)

    def _add(self, name: str, make: Callable[..., Service], **to: Any) -> Service:
        """A service with a process of its own."""
        self.services[name] = made = self._host(name, make, **to)
        return made

    def _host(self, name: str, make: Callable[..., Service], **to: Any) -> Service:
        urls = [self._way_to_redis(name, at) for at in range(len(self.stores))]
        if len(urls) > 1:
            urls = [urls[cell % len(urls)] for cell in range(self._cells)]
        made = make(
            redis_url=" ".join(urls),
            runner=CLOCK_RUNNER,
            environ={"TEST_TASKS": str(self._tasks)},
            **{**self._settings, **to, "instance_id": name},
        )
        self.hosts[name] = made
        return made

    def _way_to_redis(self, caller: str, at: int) -> str:
        """The URL of a Redis for one process, with a link in between."""
        url = self.stores[at].url
        if self._kind == SENTINEL:
            return url
        host = url.removeprefix("redis://").partition("/")[0]
        link = self.network.link(caller, f"redis-{at}" if at else "redis", host)
        return url.replace(host, link.address)

    def _links(self, caller: str, kind: str) -> str:
        """Makes a link from a caller to each process of a kind; returns their addresses."""
        for name in self.of(kind):
            self.network.link(caller, name, self.services[name].address)
        return self._way(caller, kind)

    def _way(self, caller: str, kind: str) -> str:
        links = self.network.links
        return ",".join(links[f"{caller}>{name}"].address for name in self.of(kind))

    def _stop(self) -> None:
        for node in self.nodes.values():
            node.stop()
        for host in reversed(self.hosts.values()):
            host.stop()
