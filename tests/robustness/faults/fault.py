"""What all faults have in common."""

import random
from typing import ClassVar

from tests.robustness.history import Excuses, Lost
from tests.robustness.world import World

FULL = 18
"""People with whom, and with two rooms, nine of ten slots of a world are taken."""


class Fault:
    """One thing that goes wrong once.

    Attributes:
        name: as the report groups it.
        stores: kinds of Redis in which it can happen; empty: in all.
        topologies: in which it can happen; empty: in all.
        excuses: what it may cost.
        least_s, most_s: how long it lasts, drawn between the two.
        stall_s: how long a text may take after its last word, if it is the only fault; 0: any time.
        people: how many talk at least; 0: as many as the run says.
        is_alone: it is long, or strikes several at once: it is not drawn together with another.
        at: what it hit, once injected.
        is_of_web: it strikes only clients that use the web entry: those in JavaScript.
        lost: how many packets, once healed; None: it is not about packets.
    """

    name: ClassVar[str]
    stores: ClassVar[frozenset[str]] = frozenset()
    topologies: ClassVar[frozenset[str]] = frozenset()
    excuses: ClassVar[Excuses] = Excuses()
    least_s: ClassVar[float] = 0.5
    most_s: ClassVar[float] = 2.0
    stall_s: ClassVar[float] = 0.0
    people: ClassVar[int] = 0
    is_alone: ClassVar[bool] = False
    is_of_web: ClassVar[bool] = False

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.at = ""
        self.lost: Lost | None = None

    @property
    def struck(self) -> list[str]:
        """The names of what it hit; of a link, that of its caller."""
        return [each.split(">")[0] for each in self.at.split(", ")]

    @property
    def kinds(self) -> set[str]:
        """The kinds of processes that it hit."""
        return {each.split("-")[0] for each in self.struck}

    async def inject(self, world: World) -> None:
        """Strikes."""
        raise NotImplementedError

    async def heal(self, world: World) -> None:
        """Ends it, and waits until what was gone is there again."""
        raise NotImplementedError
