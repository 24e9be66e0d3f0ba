"""Clients that come in numbers, that vanish, or that are hostile. None may harm anybody else."""

import asyncio
import random

from tests.robustness.faults.fault import FULL, Fault
from tests.robustness.traffic.client import vanish, vanish_from_web
from tests.robustness.world import World

VANISHING = 40
# Each so many of them use the web entry.
WEB_EACH = 2
HOSTILE = "hostile peers"


class Crowd(Fault):
    """Nothing breaks, but nodes are nearly full: turns have to wait for their node."""

    name = "nodes nearly full"
    least_s = 8.0
    most_s = 12.0
    people = FULL

    async def inject(self, world: World) -> None:
        """They talk anyway."""
        self.at = "nodes"

    async def heal(self, world: World) -> None:
        """Nothing to heal."""


class Vanish(Fault):
    """Sessions are opened, speak, and their connection drops without Close."""

    name = "clients vanish"
    least_s = 3.0
    most_s = 5.0

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self._gone: list[asyncio.Task[None]] = []

    async def inject(self, world: World) -> None:
        """All of them come within three seconds."""
        self.at = "clients"
        for at in range(VANISHING):
            after = self.rng.uniform(0.0, 3.0)
            if at % WEB_EACH:
                gone = vanish(world.gateways, self.rng, after)
            else:
                gone = vanish_from_web(world.web_gateways, self.rng, after)
            self._gone.append(asyncio.create_task(gone))

    async def heal(self, world: World) -> None:
        """All are gone."""
        await asyncio.gather(*self._gone)


class Hostile(Fault):
    """Nothing breaks, but hostile peers are at work. The round starts and ends them."""

    name = HOSTILE
    least_s = 8.0
    most_s = 12.0
    is_alone = True

    async def inject(self, world: World) -> None:
        """They are there."""
        self.at = "hostile peers"

    async def heal(self, world: World) -> None:
        """Nothing to heal."""


CLIENT_FAULTS: dict[str, type[Fault]] = {each.name: each for each in (Crowd, Vanish, Hostile)}
