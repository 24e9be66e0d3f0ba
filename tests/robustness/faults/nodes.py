"""Nodes that live, and behave badly."""

from typing import ClassVar

from tests.robustness.faults.fault import Fault
from tests.robustness.history import ANY_NODE, Excuses
from tests.robustness.world import World


class Misbehaviour(Fault):
    """One node does what node_program.py describes."""

    orders: ClassVar[dict[str, int]]
    least_s = 2.0
    most_s = 5.0

    async def inject(self, world: World) -> None:
        """It is told."""
        self.at = self.rng.choice(world.of("node"))
        world.nodes[self.at].order(**self.orders)

    async def heal(self, world: World) -> None:
        """It is told to be good."""
        world.nodes[self.at].order()


class Loses(Misbehaviour):
    """Assignments get lost in it."""

    name = "node loses assignments"
    orders: ClassVar = {"lose": 1}
    # The turn goes elsewhere when its node does not acknowledge.
    excuses = Excuses(turns=ANY_NODE)


class Silent(Misbehaviour):
    """It reads, and says nothing more, not even that it lives."""

    name = "node falls silent"
    orders: ClassVar = {"mute": 1}
    excuses = Excuses(turns=ANY_NODE)


class Slow(Misbehaviour):
    """A job takes two seconds."""

    name = "node is slow"
    orders: ClassVar = {"work_ms": 2000}


class TooSlow(Misbehaviour):
    """A job takes longer than it may; what is stopped answers all the same."""

    name = "node is too slow, answers late"
    orders: ClassVar = {"work_ms": 9000, "late": 1}
    # Longer than job_timeout_ms: else nothing is stopped in its time.
    least_s = 6.5
    most_s = 8.0
    excuses = Excuses(turns=ANY_NODE)


class AnswersTwice(Misbehaviour):
    """It says everything two or three times."""

    name = "node answers twice"
    orders: ClassVar = {"twice": 1}


class FailsOften(Misbehaviour):
    """Every other job fails."""

    name = "node fails often"
    orders: ClassVar = {"fail_every": 2}
    # A retry goes elsewhere, away from what was held.
    excuses = Excuses(turns=ANY_NODE)


class Floods(Misbehaviour):
    """It sends partial texts as fast as it can, also if nobody asked for any."""

    name = "node floods partial texts"
    orders: ClassVar = {"flood": 1}


NODE_FAULTS: dict[str, type[Fault]] = {
    each.name: each for each in (Loses, Silent, Slow, TooSlow, AnswersTwice, FailsOften, Floods)
}
