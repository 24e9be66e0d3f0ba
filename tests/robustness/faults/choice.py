"""Which faults a round has, from a seed: each alone, and now and then two at a time."""

import random
from collections.abc import Iterator
from dataclasses import replace

from tests.robustness.faults.cells import CELL_FAULTS
from tests.robustness.faults.clients import CLIENT_FAULTS
from tests.robustness.faults.fault import Fault
from tests.robustness.faults.links import LINK_FAULTS
from tests.robustness.faults.nodes import NODE_FAULTS
from tests.robustness.faults.processes import PROCESS_FAULTS
from tests.robustness.faults.stores import EMPTIED, STORE_FAULTS
from tests.robustness.faults.together import TOGETHER_FAULTS
from tests.robustness.history import ANY_NODE, Excuses
from tests.robustness.world import CELLS, SPLIT

ALL: dict[str, type[Fault]] = {
    **PROCESS_FAULTS,
    **NODE_FAULTS,
    **STORE_FAULTS,
    **LINK_FAULTS,
    **CLIENT_FAULTS,
    **TOGETHER_FAULTS,
    **CELL_FAULTS,
}

# A job's home and its node gone together (decision 15): what they alone knew is lost.
HOME_AND_NODE = Excuses(
    turns=ANY_NODE, missing=frozenset({"JOB_NOT_FOUND", "JOB_FAILED", "DEADLINE_EXCEEDED"})
)


def possible(store: str, topology: str, *, web: bool = True) -> list[str]:
    """The names of all faults that can happen with this kind of Redis, in this topology.

    `web`: whether there are clients that use the web entry.
    """
    # Cells change nothing about the processes.
    here = {topology, SPLIT} if topology == CELLS else {topology}
    return [
        name
        for name, each in ALL.items()
        if (not each.stores or store in each.stores)
        and (not each.topologies or here & each.topologies)
        and (web or not each.is_of_web)
    ]


def draw(names: list[str], rng: random.Random) -> Iterator[list[str]]:
    """Some of these faults, round by round, without an end: every third round has two at a time.

    Of those that are alone, each has its turn before any has a second one. Two at a time are never
    both of Redis itself, nor of one kind of process: what is dead cannot be paused, or told to end.
    """
    joined = [name for name in names if not ALL[name].is_alone]
    while True:
        for at, name in enumerate(rng.sample(names, len(names))):
            if at % 2 == 1 and joined:
                first = rng.choice(joined)
                others = [each for each in joined if _may_join(first, each)]
                if others:
                    yield sorted((first, rng.choice(others)))
            yield [name]


def _may_join(one: str, other: str) -> bool:
    if one == other or {one, other} <= STORE_FAULTS.keys() | CELL_FAULTS.keys():
        return False
    kinds = {getattr(ALL[name], "kind", name) for name in (one, other)}
    return len(kinds) == 2


def excuses_of(faults: list[Fault]) -> Excuses:
    """What they may cost together."""
    total = Excuses()
    for each in faults:
        total |= _narrowed(each)
    hit = {kind for each in faults for kind in each.kinds}
    if len(faults) > 1 and "node" in hit and hit & {"all", "dispatcher", "gateway", "redis"}:
        total |= HOME_AND_NODE
    if len(faults) > 1 and any(each.excuses == EMPTIED for each in faults):
        # What a store that came back empty knew of a process that died is nowhere.
        total |= HOME_AND_NODE
    return total


def _narrowed(fault: Fault) -> Excuses:
    """What it may cost; of nodes that it struck by name, only these break turns."""
    nodes = frozenset(each for each in fault.struck if each.startswith("node-"))
    if fault.excuses.turns >= ANY_NODE and nodes:
        return replace(fault.excuses, turns=nodes)
    return fault.excuses
