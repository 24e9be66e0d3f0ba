"""Processes that die, stop in their tracks, or are told to end."""

import asyncio
import random
import signal
import time
from typing import ClassVar

from tests.robustness.faults.fault import Fault
from tests.robustness.history import ANY_NODE, Excuses
from tests.robustness.world import ALL, SPLIT, World

_LOOK_S = 0.02
_HOLDS_S = 30.0
_ONE_JOB = ("assigned", "started", "finished", "failed", "stopped")
# Detection takes about three seconds; then jobs are placed anew. A busy machine needs some more.
_LEFT_WITHIN_S = 8.0
# It is away for longer than a turn waits.
MOVED = Excuses(turns=ANY_NODE)


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


class LongPause(Pause):
    """SIGSTOP for longer than it may take to notice it: the others go on without it."""

    least_s = 10.0
    most_s = 12.0
    is_alone = True


class KillHolder(Fault):
    """kill -9 at a moment when the node holds the beginning of a sentence."""

    name = "kill -9 of a node that holds audio"
    excuses = MOVED
    is_alone = True

    async def inject(self, world: World) -> None:
        """Strikes as soon as a node holds something, by its own record."""
        since = time.monotonic()
        while not (holders := [name for name in world.of("node") if _holds(world, name, since)]):
            await asyncio.sleep(_LOOK_S)
            assert time.monotonic() < since + _HOLDS_S, "no node ever held audio"
        self.at = self.rng.choice(holders)
        await asyncio.to_thread(world.nodes[self.at].kill)

    async def heal(self, world: World) -> None:
        """It is back, and holds nothing."""
        await world.nodes[self.at].restart()


def _holds(world: World, name: str, since: float) -> bool:
    """Whether the last job of a session there has ended with audio that is held."""
    last = {each["session"]: each for each in world.nodes[name].history(since).of(*_ONE_JOB)}
    return any(each.get("held") for each in last.values())


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


# The kinds of processes, what they are called, and where there are any.
_KINDS = {
    "gateway": ("a gateway", frozenset({SPLIT})),
    "dispatcher": ("a dispatcher", frozenset({SPLIT})),
    "pool": ("a pool", frozenset({SPLIT})),
    "all": ("an all-in-one process", frozenset({ALL})),
    "node": ("a node", frozenset({SPLIT, ALL})),
}


def _made() -> dict[str, type[Fault]]:
    made: dict[str, type[Fault]] = {}
    for kind, (called, topologies) in _KINDS.items():
        has_dispatcher = kind in ("dispatcher", "all")
        common = {"kind": kind, "topologies": topologies}
        for base, verb in ((Kill, "kill -9"), (Pause, "pause"), (Terminate, "SIGTERM")):
            name = f"{verb} of {called}"
            # A node that is told to end finishes what it has, but takes along what it holds. A
            # dispatcher that stands still passes nothing on to its nodes: what they do not
            # acknowledge in time goes elsewhere.
            breaks_turns = kind == "node" or (has_dispatcher and base is Pause)
            excuses = MOVED if breaks_turns else Excuses()
            fields = {"name": name, "excuses": excuses, "__doc__": base.__doc__, **common}
            made[name] = type(f"{base.__name__}{kind.title()}", (base,), fields)
        name = f"long pause of {called}"
        # Until a paused node is given up, its jobs wait for it.
        stall_s = 0.0 if kind == "node" else _LEFT_WITHIN_S
        excuses = MOVED if kind == "node" or has_dispatcher else Excuses()
        fields = {"name": name, "excuses": excuses, "stall_s": stall_s, **common}
        made[name] = type(f"LongPause{kind.title()}", (LongPause,), fields)
    made[KillHolder.name] = KillHolder
    return made


PROCESS_FAULTS = _made()
