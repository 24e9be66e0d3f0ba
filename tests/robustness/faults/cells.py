"""Jobs on nodes of another cell than their own, at a moment when one of the two fails.

`home` is the cell of the job's session; the node is in a cell on the other server.
"""

import asyncio
import time
from typing import ClassVar

from lingua_scheduler.services.runtime.contract.cell_names import cell_of_job
from tests.robustness.faults.fault import Fault
from tests.robustness.network import CUT, SWALLOW
from tests.robustness.processes import sha_of
from tests.robustness.store import AOF, EMPTY, Store
from tests.robustness.world import CELLS, World

_LOOK_S = 0.02
_HAPPENS_S = 30.0


class _CellAway(Fault):
    """A server dies while a job of one server's cell runs on a node of the other's."""

    strikes_home: ClassVar[bool]
    stores = frozenset({AOF})
    topologies = frozenset({CELLS})
    least_s = 1.0
    most_s = 3.0

    store: Store

    async def inject(self, world: World) -> None:
        """Strikes as soon as a node has been given such a job, by its own record."""
        since = time.monotonic()
        while (found := await self._strays(world, since)) is None:
            assert time.monotonic() < since + _HAPPENS_S, "no job ever left its own server"
            await asyncio.sleep(_LOOK_S)
        home, there = found
        self.store = home if self.strikes_home else there
        self.at = f"redis-{world.stores.index(self.store)}"
        await asyncio.to_thread(self.store.primary.kill)

    async def heal(self, world: World) -> None:
        """It is back, with its data."""
        await asyncio.to_thread(self.store.primary.restart)

    async def _strays(self, world: World, since: float) -> tuple[Store, Store] | None:
        for node in await world.known_nodes():
            if node.node_id not in world.nodes:
                continue
            there = world.store_of(node.cell)
            for record in world.nodes[node.node_id].history(since).of("assigned"):
                home = world.store_of(cell_of_job(record["job"]))
                if home is not there:
                    return home, there
        return None


class HomeAway(_CellAway):
    """The job's own cell is away: nobody can record its result before it is back."""

    name = "home cell away"
    strikes_home = True


class OtherAway(_CellAway):
    """The cell of the node is away: the job must not wait for it."""

    name = "other cell away"
    strikes_home = False


class _Between(Fault):
    """A pool service takes a slot in another cell, and does not learn what came of it.

    Attributes:
        at_home: which answer is lost, or which link is cut: the home's, to the confirmation, or the
            other cell's, to the taking.
        state: of the link from then on.
    """

    at_home: ClassVar[bool]
    state: ClassVar[str] = SWALLOW
    stores = frozenset({AOF, EMPTY})
    topologies = frozenset({CELLS})

    async def inject(self, world: World) -> None:
        """Strikes when the next slot is taken in another cell."""
        links = world.network.links
        ways = {
            pool: [links[f"{pool}>redis"], links[f"{pool}>redis-1"]] for pool in world.of("pool")
        }
        sha = sha_of("take")
        sprung: list[str] = []
        for both in ways.values():
            for there, home in (both, both[::-1]):
                victim = home if self.at_home else there

                def spring(victim: str = victim.name) -> None:
                    if not sprung:
                        sprung.append(victim)
                        world.network.change(links[victim], self.state)

                there.trap = (sha, spring)
        since = time.monotonic()
        while not sprung:
            assert time.monotonic() < since + _HAPPENS_S, "no slot was taken in another cell"
            await asyncio.sleep(_LOOK_S)
        self.at = sprung[0]
        for link in (each for both in ways.values() for each in both):
            link.trap = None

    async def heal(self, world: World) -> None:
        """The link is good again."""
        world.network.mend(world.network.links[self.at])


class TakingLost(_Between):
    """A slot is taken, and nobody knows."""

    name = "answers lost: slot taken in another cell"
    at_home = False


class ConfirmationLost(_Between):
    """A slot is taken and confirmed, and nobody knows."""

    name = "answers lost: slot in another cell confirmed"
    at_home = True


class NeverConfirmed(_Between):
    """A slot is taken, and cannot be confirmed."""

    name = "cut: slot in another cell not confirmed"
    at_home = True
    state = CUT


CELL_FAULTS: dict[str, type[Fault]] = {
    each.name: each for each in (HomeAway, OtherAway, TakingLost, ConfirmationLost, NeverConfirmed)
}
