"""What all faults have in common."""

import random
from typing import ClassVar

from tests.robustness.history import Excuses, Lost
from tests.robustness.world import World


class Fault:
    """One thing that goes wrong once.

    Attributes:
        name: as the report groups it.
        stores: kinds of Redis in which it can happen; empty: in all.
        excuses: what it may cost.
        least_s, most_s: how long it lasts, drawn between the two.
        at: what it hit, once injected.
        lost: how many packets, once healed; None: it is not about packets.
    """

    name: ClassVar[str]
    stores: ClassVar[frozenset[str]] = frozenset()
    excuses: ClassVar[Excuses] = Excuses()
    least_s: ClassVar[float] = 0.5
    most_s: ClassVar[float] = 2.0

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.at = ""
        self.lost: Lost | None = None

    @property
    def kinds(self) -> set[str]:
        """The kinds of processes that it hit."""
        return {each.split("-")[0] for each in self.at.split(", ")}

    async def inject(self, world: World) -> None:
        """Strikes."""
        raise NotImplementedError

    async def heal(self, world: World) -> None:
        """Ends it, and waits until what was gone is there again."""
        raise NotImplementedError
