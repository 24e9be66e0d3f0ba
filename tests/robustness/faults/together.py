"""Several processes, or a process and Redis, are away at the same time."""

import asyncio
import random
from typing import ClassVar

from tests.robustness.faults.fault import FULL, Fault
from tests.robustness.history import ANY_NODE, Excuses
from tests.robustness.store import AOF, EMPTY
from tests.robustness.world import ALL, SPLIT, World


class PoolsAndNode(Fault):
    """All pool services and a node die; its jobs cannot be placed elsewhere for a while."""

    name = "pool services and a node away together"
    topologies = frozenset({SPLIT})
    excuses = Excuses(turns=ANY_NODE)
    least_s = 3.0
    most_s = 4.0
    is_alone = True

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self._victims: list[str] = []

    async def inject(self, world: World) -> None:
        """All are dead."""
        self._victims = [*world.of("pool"), self.rng.choice(world.of("node"))]
        self.at = ", ".join(self._victims)
        for name in self._victims:
            await asyncio.to_thread(world.processes[name].kill)

    async def heal(self, world: World) -> None:
        """All are back; the node last."""
        for name in self._victims:
            await world.processes[name].restart()


class PoolWithoutRedis(Fault):
    """Redis stops; a pool service dies and is started again before Redis goes on."""

    name = "pool service restarted while Redis is away"
    kind: ClassVar[str] = "pool"
    stores = frozenset({AOF, EMPTY})
    topologies = frozenset({SPLIT})
    # Longer than heartbeat_stale_ms, so that all heartbeats look old.
    least_s = 4.0
    most_s = 6.0
    is_alone = True

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self._victim = ""

    async def inject(self, world: World) -> None:
        """The new process looks for a Redis that does not answer."""
        self._victim = self.rng.choice(world.of(self.kind))
        self.at = f"redis, {self._victim}"
        await asyncio.to_thread(world.store.primary.pause)
        host = world.hosts[self._victim]
        await asyncio.to_thread(host.kill)
        host.start()

    async def heal(self, world: World) -> None:
        """Redis goes on, and the new process is ready."""
        await asyncio.to_thread(world.store.primary.resume)
        await asyncio.to_thread(world.hosts[self._victim].wait_ready)


class ProcessWithoutRedis(PoolWithoutRedis):
    """Redis stops; a process with all services dies and is started again before Redis goes on."""

    name = "all-in-one process restarted while Redis is away"
    # Without Redis its nodes cannot connect elsewhere, for longer than a job may take.
    excuses = Excuses(turns=ANY_NODE)
    kind = "all"
    topologies = frozenset({ALL})


class DispatchersKilled(Fault):
    """One dispatcher after the other dies, again and again, while nearly all slots are taken."""

    name = "dispatchers killed with full nodes"
    kind: ClassVar[str] = "dispatcher"
    topologies = frozenset({SPLIT})
    least_s = 8.0
    most_s = 14.0
    people = FULL
    is_alone = True

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self._enough = asyncio.Event()
        self._kills: asyncio.Task[None] | None = None

    async def inject(self, world: World) -> None:
        """Begins with it."""
        victims = world.of(self.kind)
        self.at = ", ".join(victims)
        self._kills = asyncio.create_task(self._kill(world, victims))

    async def heal(self, world: World) -> None:
        """No more of them die, and all are up."""
        self._enough.set()
        if self._kills is not None:
            await self._kills

    async def _kill(self, world: World, victims: list[str]) -> None:
        while not self._enough.is_set():
            victim = world.hosts[self.rng.choice(victims)]
            await asyncio.to_thread(victim.kill)
            await victim.restart()
            await asyncio.sleep(self.rng.uniform(0.5, 2.5))


class ProcessesKilled(DispatchersKilled):
    """The same with processes that have all services."""

    name = "all-in-one processes killed with full nodes"
    kind = "all"
    topologies = frozenset({ALL})


class RollingRestart(Fault):
    """Each process with all services is told to end and started again, as in a roll-out."""

    name = "rolling restart of all-in-one processes"
    topologies = frozenset({ALL})
    is_alone = True

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self._restarts: asyncio.Task[None] | None = None

    async def inject(self, world: World) -> None:
        """Begins with the first."""
        victims = self.rng.sample(world.of("all"), len(world.of("all")))
        self.at = ", ".join(victims)
        self._restarts = asyncio.create_task(self._restart(world, victims))

    async def heal(self, world: World) -> None:
        """All have been replaced."""
        if self._restarts is not None:
            await self._restarts

    async def _restart(self, world: World, victims: list[str]) -> None:
        for name in victims:
            process = world.hosts[name]
            process.terminate()
            code = await process.exit_code(20)
            assert code == 0, f"{name} ended with {code}:\n{process.log()[-2000:]}"
            await process.restart()
            # The next pod follows as soon as this one is ready.


TOGETHER_FAULTS: dict[str, type[Fault]] = {
    each.name: each
    for each in (
        PoolsAndNode,
        PoolWithoutRedis,
        ProcessWithoutRedis,
        DispatchersKilled,
        ProcessesKilled,
        RollingRestart,
    )
}
