"""Several processes, or a process and Redis, are away at the same time."""

import asyncio
import random

from tests.robustness.faults.fault import FULL, Fault
from tests.robustness.history import ANY_NODE, Excuses
from tests.robustness.store import AOF, EMPTY
from tests.robustness.world import World


class PoolsAndNode(Fault):
    """All pool services and a node die; its jobs cannot be placed elsewhere for a while."""

    name = "pool services and a node away together"
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
    stores = frozenset({AOF, EMPTY})
    # Longer than heartbeat_stale_ms, so that all heartbeats look old.
    least_s = 4.0
    most_s = 6.0
    is_alone = True

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self._victim = ""

    async def inject(self, world: World) -> None:
        """The new process looks for a Redis that does not answer."""
        self._victim = self.rng.choice(world.of("pool"))
        self.at = f"redis, {self._victim}"
        await asyncio.to_thread(world.store.primary.pause)
        pool = world.services[self._victim]
        await asyncio.to_thread(pool.kill)
        pool.start()

    async def heal(self, world: World) -> None:
        """Redis goes on, and the new process is ready."""
        await asyncio.to_thread(world.store.primary.resume)
        await asyncio.to_thread(world.services[self._victim].wait_ready)


class DispatchersKilled(Fault):
    """One dispatcher after the other dies, again and again, while nearly all slots are taken."""

    name = "dispatchers killed with full nodes"
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
        victims = world.of("dispatcher")
        self.at = ", ".join(victims)
        self._kills = asyncio.create_task(self._kill(world, victims))

    async def heal(self, world: World) -> None:
        """No more of them die, and all are up."""
        self._enough.set()
        if self._kills is not None:
            await self._kills

    async def _kill(self, world: World, victims: list[str]) -> None:
        while not self._enough.is_set():
            victim = world.services[self.rng.choice(victims)]
            await asyncio.to_thread(victim.kill)
            await victim.restart()
            await asyncio.sleep(self.rng.uniform(0.5, 2.5))


TOGETHER_FAULTS: dict[str, type[Fault]] = {
    each.name: each for each in (PoolsAndNode, PoolWithoutRedis, DispatchersKilled)
}
