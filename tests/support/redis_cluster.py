"""A real Redis Cluster of three masters and three replicas, and what happens to one."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import redis

from lingua_scheduler.services.runtime.redis.embedded.binary import ServerBinary
from lingua_scheduler.services.runtime.redis.embedded.server import EmbeddedRedis
from lingua_scheduler.services.runtime.settings.redis_url import slot_of
from tests.support.ports import free_port
from tests.support.redis_servers import HOST, packaged, wait_until
from tests.support.redis_tls import Certificate

SLOTS = 16384
MASTERS = 3
# A master that says nothing for this long is replaced.
NODE_TIMEOUT_MS = 1000
_OPTIONS = (
    *("--cluster-enabled", "yes"),
    *("--cluster-node-timeout", str(NODE_TIMEOUT_MS)),
    # The slots of other masters are served while one is away, and any replica may take over.
    *("--cluster-require-full-coverage", "no"),
    *("--cluster-replica-validity-factor", "0"),
    *("--repl-diskless-sync-delay", "0"),
)


class RedisCluster:
    """The cluster. All methods block: in a coroutine, call them with `asyncio.to_thread`.

    Attributes:
        nodes: all servers; the first three were masters at the start.
        url: what services are told; it names all nodes.
        password: of all servers; empty if there is none.
        ports: those for services and for other servers, of each node: with TLS, if it is used.
    """

    def __init__(
        self,
        nodes: Sequence[EmbeddedRedis],
        password: str = "",
        *,
        tls_ports: Sequence[int] = (),
        certificate: Certificate | None = None,
    ) -> None:
        self.nodes = list(nodes)
        self.password = password
        self.ports = list(tls_ports) or [node.port for node in nodes]
        hosts = ",".join(f"{HOST}:{port}" for port in self.ports)
        scheme, query = ("rediss", certificate.query) if certificate else ("redis", "")
        self.url = f"{scheme}+cluster://{f':{password}@' if password else ''}{hosts}{query}"

    def ask(self, node: EmbeddedRedis, *command: str | int) -> Any:
        """One command to one node."""
        with redis.Redis(
            port=node.port, password=self.password or None, protocol=2, socket_timeout=5
        ) as client:
            return client.execute_command(*command)

    def master_of(self, prefix: str) -> EmbeddedRedis:
        """The server that owns the keys under a prefix, as most living servers see it."""
        seen = [self._owner(node, slot_of(prefix)) for node in self.nodes if node.pid]
        port = max(set(seen), key=seen.count)
        return next(node for node in self.nodes if node.port == port)

    def another_master(self, prefix: str) -> EmbeddedRedis:
        """A living master that does not own the keys under a prefix."""
        owner = self.master_of(prefix)
        others = [node for node in self.nodes if node.pid and node is not owner]
        return next(node for node in others if self._role(node) == b"master")

    def replica_of(self, master: EmbeddedRedis) -> EmbeddedRedis:
        """A living replica of a master."""
        for node in self.nodes:
            if node.pid and node is not master:
                role = self.ask(node, "ROLE")
                if role[0] == b"slave" and role[2] == master.port:
                    return node
        raise AssertionError(f"the master at port {master.port} has no replica")

    def kill_master_of(self, prefix: str) -> EmbeddedRedis:
        """Kills (-9) the server that owns a prefix; returns it, to be restarted, at once.

        Its replica has everything then that the master had answered before the call.
        """
        master = self.master_of(prefix)
        self.wait_replicated(master)
        master.kill()
        return master

    def wait_replicated(self, master: EmbeddedRedis) -> None:
        """Waits until a replica of a master has all that the master has."""
        wait_until(lambda: self.ask(master, "WAIT", 1, 1000) >= 1)

    def restart(self, node: EmbeddedRedis) -> None:
        """Starts a node that was killed; returns when each master has a replica again."""
        node.restart()
        self.set_password(node)
        self.wait_for_replicas()

    def set_password(self, node: EmbeddedRedis) -> None:
        """Gives a node that has just started, and has none, the password of the cluster."""
        if self.password:
            options = ("masterauth", self.password, "requirepass", self.password)
            RedisCluster([]).ask(node, "CONFIG", "SET", *options)

    def wait_for_replicas(self) -> None:
        """Waits until each master has a replica that could take over, as at the start."""

        def is_whole() -> bool:
            roles = [self.ask(node, "ROLE") for node in self.nodes]
            follows = [role[3] == b"connected" for role in roles if role[0] == b"slave"]
            return len(follows) == len(self.nodes) - MASTERS and all(follows)

        wait_until(is_whole)

    def wait_for_other_master(self, prefix: str, old: EmbeddedRedis) -> EmbeddedRedis:
        """Waits until all living servers agree on another owner of a prefix; returns it."""
        slot = slot_of(prefix)

        def agreed() -> bool:
            owners = {self._owner(node, slot) for node in self.nodes if node.pid}
            return len(owners) == 1 and not owners & {old.port, 0}

        wait_until(agreed)
        return self.master_of(prefix)

    def reshard(self, prefix: str, to: EmbeddedRedis | None = None) -> EmbeddedRedis:
        """Moves the slot of a prefix, key by key, to another master; returns that."""
        moving = self.begin_resharding(prefix, to)
        while moving.move(10):
            pass
        moving.finish()
        return moving.target

    def begin_resharding(self, prefix: str, to: EmbeddedRedis | None = None) -> Resharding:
        """Begins to move the slot of a prefix key by key; the test decides how fast."""
        return Resharding(
            self, slot_of(prefix), self.master_of(prefix), to or self.another_master(prefix)
        )

    def reshard_atomically(self, prefix: str, to: EmbeddedRedis | None = None) -> EmbeddedRedis:
        """Moves the slot of a prefix in one step, as Valkey 9 can; returns the new owner."""
        source, target = self.master_of(prefix), to or self.another_master(prefix)
        slot = slot_of(prefix)
        node = self.id_of(target)
        self.ask(source, "CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", node)
        wait_until(lambda: self._owner(source, slot) == target.port)
        return target

    def id_of(self, node: EmbeddedRedis) -> str:
        """The name that the cluster has for a node."""
        return str(self.ask(node, "CLUSTER", "MYID").decode())

    def _role(self, node: EmbeddedRedis) -> bytes:
        return bytes(self.ask(node, "ROLE")[0])

    def _owner(self, node: EmbeddedRedis, slot: int) -> int:
        """The port of a slot's owner as one node sees it; 0 for none."""
        for first, last, owner, *_ in self.ask(node, "CLUSTER", "SLOTS"):
            if first <= slot <= last:
                return int(owner[1])
        return 0


class Resharding:
    """A slot on its way, key by key, as `redis-cli --cluster reshard` moves it."""

    def __init__(
        self, cluster: RedisCluster, slot: int, source: EmbeddedRedis, target: EmbeddedRedis
    ) -> None:
        self.source, self.target = source, target
        self._cluster, self._slot = cluster, slot
        self._setslot(target, "IMPORTING", source)
        self._setslot(source, "MIGRATING", target)

    def move(self, count: int) -> int:
        """Moves some keys, chosen at random; returns how many were left to move."""
        ask = self._cluster.ask
        keys = ask(self.source, "CLUSTER", "GETKEYSINSLOT", self._slot, 1000)
        if keys:
            password = self._cluster.password
            auth = ("AUTH", password) if password else ()
            some = random.sample(keys, min(count, len(keys)))
            port = self._cluster.ports[self._cluster.nodes.index(self.target)]
            place = (HOST, port, "", 0, 5000)
            ask(self.source, "MIGRATE", *place, *auth, "KEYS", *some)
        return len(keys)

    def finish(self) -> None:
        """Gives the slot to the target. No key may be left at the source."""
        self._setslot(self.target, "NODE", self.target)
        self._setslot(self.source, "NODE", self.target)

    def cancel(self) -> None:
        """Leaves the slot where it was. No key may have moved."""
        for node in (self.source, self.target):
            self._cluster.ask(node, "CLUSTER", "SETSLOT", self._slot, "STABLE")

    def _setslot(self, at: EmbeddedRedis, what: str, node: EmbeddedRedis) -> None:
        self._cluster.ask(at, "CLUSTER", "SETSLOT", self._slot, what, self._cluster.id_of(node))


@contextmanager
def running_cluster(
    *,
    password: str = "",
    replicas: bool = True,
    binary: ServerBinary | None = None,
    certificate: Certificate | None = None,
) -> Iterator[RedisCluster]:
    """Three masters with a third of the slots each and, unless not wanted, a replica of each.

    Takes about two seconds to start.

    Args:
        password: of all servers.
        replicas: whether there are any.
        binary: the server; None for the packaged one.
        certificate: services and servers then use TLS; tests ask without.
    """
    with ExitStack() as stack:
        nodes: list[EmbeddedRedis] = []
        buses: list[int] = []
        tls_ports: list[int] = []
        binary = binary or packaged()
        for _ in range(2 * MASTERS if replicas else MASTERS):
            # The usual bus port, 10000 above, may be over 65535.
            buses.append(free_port())
            args = (*_OPTIONS, "--cluster-port", str(buses[-1]))
            if certificate is not None:
                tls_ports.append(free_port())
                args += ("--tls-cluster", "yes", *certificate.arguments(tls_ports[-1]))
            nodes.append(stack.enter_context(EmbeddedRedis(args=args, binary=binary)))
        cluster = RedisCluster(nodes, password, tls_ports=tls_ports, certificate=certificate)
        join(nodes, cluster.ports, buses)
        # The embedded server must be ready before it has a password.
        for node in nodes:
            cluster.set_password(node)
        replicate(cluster)
        yield cluster


def join(nodes: Sequence[EmbeddedRedis], ports: Sequence[int], buses: Sequence[int]) -> None:
    """Makes a cluster of servers, of which the first three are masters with slots."""
    alone = RedisCluster(nodes)
    for index, node in enumerate(nodes):
        if index < MASTERS:
            first, last = SLOTS * index // MASTERS, SLOTS * (index + 1) // MASTERS - 1
            alone.ask(node, "CLUSTER", "ADDSLOTSRANGE", first, last)
        alone.ask(node, "CLUSTER", "SET-CONFIG-EPOCH", index + 1)
    # Each to each: otherwise they would hear of each other one after the other.
    for index, node in enumerate(nodes):
        for port, bus in zip(ports[:index], buses[:index], strict=True):
            alone.ask(node, "CLUSTER", "MEET", HOST, port, bus)

    def is_whole(node: EmbeddedRedis) -> bool:
        facts = str(alone.ask(node, "CLUSTER", "INFO"))
        known = f"cluster_known_nodes:{len(nodes)}\\r" in facts
        return known and "cluster_state:ok" in facts and "cluster_size:3" in facts

    wait_until(lambda: all(map(is_whole, nodes)))


def replicate(cluster: RedisCluster) -> None:
    """Makes each server after the first three the replica of one of them."""
    pairs = list(zip(cluster.nodes, cluster.nodes[MASTERS:], strict=False))
    for master, replica in pairs:
        cluster.ask(replica, "CLUSTER", "REPLICATE", cluster.id_of(master))

    def follows(replica: EmbeddedRedis) -> bool:
        role = cluster.ask(replica, "ROLE")
        return role[0] == b"slave" and role[3] == b"connected"

    wait_until(lambda: all(follows(replica) for _, replica in pairs))

    # Only a replica that the other masters know of can be voted for.
    def is_known(node: EmbeddedRedis) -> bool:
        listed = cluster.ask(node, "CLUSTER", "NODES").decode().splitlines()
        return sum(" slave " in line.replace("myself,", " ") for line in listed) == len(pairs)

    wait_until(lambda: all(map(is_known, cluster.nodes)))
