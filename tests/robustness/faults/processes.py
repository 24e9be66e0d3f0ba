"""Processes that die, stop in their tracks, or are told to end."""

import asyncio
import random
import signal
from typing import ClassVar

from tests.robustness.faults.fault import Fault
from tests.robustness.history import Excuses
from tests.robustness.world import World

# What a node holds dies with it; and it is away for longer than a turn waits.
HELD = Excuses(held=True)


class _OfKind(Fault):
    kind: ClassVar[str]

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self.victim = ""

    def choose(self, world: World) -> None:
        """Which process of the kind it is."""
        self.victim = self.at = self.rng.choice(world.of(self.kind))


class Kill(_OfKind):
    """kill -9, and a restart at the same address."""

    async def inject(self, world: World) -> None:
        """Returns when it is dead."""
        self.choose(world)
        await asyncio.to_thread(world.processes[self.victim].kill)

    async def heal(self, world: World) -> None:
        """Returns when it is ready again."""
        await world.processes[self.victim].restart()


class Pause(_OfKind):
    """SIGSTOP, and SIGCONT some time later: it looks alive, and then acts on what it knew."""

    least_s = 1.0
    most_s = 5.0

    async def inject(self, world: World) -> None:
        """From here on it does nothing."""
        self.choose(world)
        world.processes[self.victim].process.send_signal(signal.SIGSTOP)

    async def heal(self, world: World) -> None:
        """It goes on where it was."""
        world.processes[self.victim].process.send_signal(signal.SIGCONT)


class Terminate(_OfKind):
    """SIGTERM, and a restart when it has drained."""

    async def inject(self, world: World) -> None:
        """It begins to drain."""
        self.choose(world)
        world.processes[self.victim].terminate()

    async def heal(self, world: World) -> None:
        """It must have ended well."""
        process = world.processes[self.victim]
        code = await process.exit_code(20)
        assert code == 0, f"{self.victim} ended with {code}:\n{process.log()[-2000:]}"
        await process.restart()


def _made() -> dict[str, type[Fault]]:
    made: dict[str, type[Fault]] = {}
    for kind in ("gateway", "dispatcher", "pool", "node"):
        for base, verb in ((Kill, "kill -9"), (Pause, "pause"), (Terminate, "SIGTERM")):
            name = f"{verb} of a {kind}"
            # A node that is told to end finishes what it has, but takes along what it holds. A
            # dispatcher that stands still passes nothing on to its nodes: what they do not
            # acknowledge in time goes elsewhere.
            breaks_turns = kind == "node" or (kind == "dispatcher" and base is Pause)
            excuses = HELD if breaks_turns else Excuses()
            fields = {"name": name, "kind": kind, "excuses": excuses, "__doc__": base.__doc__}
            made[name] = type(f"{base.__name__}{kind.title()}", (base,), fields)
    return made


PROCESS_FAULTS = _made()
