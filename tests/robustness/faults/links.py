"""The network between two processes is cut, silent, slow or lossy; or Redis' answers get lost."""

import asyncio
import re
from typing import ClassVar

from tests.robustness.faults.fault import Fault
from tests.robustness.history import ANY_NODE, Excuses
from tests.robustness.network import CUT, SILENT, SWALLOW, Link
from tests.robustness.store import AOF, EMPTY
from tests.robustness.world import ALL, SPLIT, World


class _OnLinks(Fault):
    """Strikes one link of a kind; `between` are the kinds at its ends."""

    between: ClassVar[tuple[str, str]]

    link: Link

    def fitting(self, world: World) -> list[Link]:
        """All that it may strike."""
        caller, target = self.between
        fitting = [
            link
            for name, link in sorted(world.network.links.items())
            if re.fullmatch(rf"{caller}(-\d+)?>{target}(-\d+)?", name)
        ]
        # One that nobody uses would prove nothing.
        return [link for link in fitting if link.is_used] or fitting

    async def inject(self, world: World) -> None:
        """Strikes."""
        self.link = self.rng.choice(self.fitting(world))
        self.at = self.link.name
        self.strike(world, self.link)

    async def heal(self, world: World) -> None:
        """The link is good again."""
        world.network.mend(self.link)

    def strike(self, world: World, link: Link) -> None:
        """One link."""
        raise NotImplementedError


class CutOff(_OnLinks):
    """Connections are reset, and so is every new one."""

    def strike(self, world: World, link: Link) -> None:
        """It is cut."""
        world.network.change(link, CUT)


class HalfOpen(_OnLinks):
    """Nothing passes, and nothing is closed."""

    least_s = 1.0
    most_s = 5.0

    def strike(self, world: World, link: Link) -> None:
        """It falls silent."""
        world.network.change(link, SILENT)


class Slow(_OnLinks):
    """Everything takes 50 ms each way, and some of it 300 ms."""

    least_s = 2.0
    most_s = 4.0

    def strike(self, world: World, link: Link) -> None:
        """It is slow, in both directions."""
        link.delay_s, link.jitter_s = 0.05, 0.25


class Lossy(_OnLinks):
    """1 to 20 % of all packets are lost, each way."""

    least_s = 2.0
    most_s = 4.0

    async def inject(self, world: World) -> None:
        """Begins to lose them, on a link that is busy: there is little to lose on others."""
        links = self.fitting(world)
        before = [each.passed for each in links]
        await asyncio.sleep(_LOOK_S)
        passed = [each.passed - n for each, n in zip(links, before, strict=True)]
        busy = [each for each, n in zip(links, passed, strict=True) if 2 * n >= max(passed)]
        self.link = self.rng.choice(busy)
        self.at = self.link.name
        await asyncio.to_thread(world.network.lose, self.link, self.rng.choice(_LOSS_RATES))

    async def heal(self, world: World) -> None:
        """All packets arrive again."""
        self.lost = await asyncio.to_thread(world.network.lose_no_more, self.link)


class LostAnswers(_OnLinks):
    """A call to Redis succeeds, and its caller sees a time-out."""

    stores = frozenset({AOF, EMPTY})

    def strike(self, world: World, link: Link) -> None:
        """From here on no answer comes back."""
        world.network.change(link, SWALLOW)


_LOOK_S = 0.5
_LOSS_RATES = (0.01, 0.03, 0.1, 0.2)

_PAIRS = {
    "client and gateway": ("clients", "gateway"),
    "web client and gateway": ("clients-web", "gateway"),
    "gateway and dispatcher": ("gateway", "dispatcher"),
    "dispatcher and pool": ("dispatcher", "pool"),
    "dispatcher and dispatcher": ("dispatchers", "dispatcher"),
    "node and dispatcher": ("node", "dispatcher"),
    "gateway and Redis": ("gateway", "redis"),
    "dispatcher and Redis": ("dispatcher", "redis"),
    "pool and Redis": ("pool", "redis"),
    "all-in-one process and Redis": ("all", "redis"),
}
# Within a process there are no links.
_EVERYWHERE = ("clients", "clients-web", "dispatchers", "node")


def _made() -> dict[str, type[Fault]]:
    made: dict[str, type[Fault]] = {}
    for pair, between in _PAIRS.items():
        bases = [(CutOff, "cut"), (HalfOpen, "half open"), (Slow, "slow"), (Lossy, "loss")]
        if "redis" in between:
            bases.append((LostAnswers, "answers lost"))
        topologies = frozenset({ALL if between[0] == "all" else SPLIT})
        if between[0] in _EVERYWHERE:
            topologies = frozenset({SPLIT, ALL})
        for base, verb in bases:
            # What is not acknowledged in time goes elsewhere, away from what its node holds.
            moves = base in (HalfOpen, Lossy) and between[0] in ("node", "dispatchers")
            fields = {
                "name": f"{verb}: {pair}",
                "between": between,
                "excuses": Excuses(turns=ANY_NODE if moves else frozenset()),
                "stores": frozenset({AOF, EMPTY}) if "redis" in between else frozenset(),
                "topologies": topologies,
                "is_of_web": between[0] == "clients-web",
                "__doc__": base.__doc__,
            }
            made[f"{verb}: {pair}"] = type(base.__name__, (base,), fields)
    return made


LINK_FAULTS = _made()
