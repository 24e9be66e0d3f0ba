"""What cells cost: a job by the number of cells, a job that leaves its cell, and large fleets.

    make bench-cells                                      tables; about ten minutes
    make bench-cells ARGS="--json"                        one JSON object
    make bench-cells ARGS="--rounds 1"                    to see whether it works
    make bench-cells ARGS="--from FILE --plots FOLDER"    charts of an earlier run

A real pool service for each number of cells, all on this machine, with embedded Redis servers. They
are measured in turns, in a random order in each round. A job is Allocate, Commit, Complete and its
share of heartbeats, over an Operate stream; what a service spends without jobs is subtracted.
Results are medians over the rounds, and ratios to one cell in the same round.

The second part is a simulation (`cells_model.py`) of fleets that do not fit on one machine, with
the measured costs; one of its points is measured, too.
"""

import argparse
import asyncio
import itertools
import json
import os
import random
import sys
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from cells_model import Assumptions, Direction, nodes_for, slots_by_cell
from cells_plan import plans, spilled_by_nodes
from cells_report import plots, table
from cells_service import (
    SLOTS,
    CellsService,
    RefusedError,
    Work,
    at_random,
    cells_service,
)
from machine import machine

from lingua_scheduler.services.runtime.contract.cell_names import id_in_cell, ranked

# Cells and servers.
SIDES = ((1, 1), (2, 1), (4, 1), (12, 1), (12, 3), (12, 12))
# Those on which jobs leave their cell.
LEAVING = ((2, 1), (12, 1), (12, 12))
NODES = 240
ROUNDS = 6
IDLE_S = 4.0
STEADY_RATE, STEADY_S = 400.0, 2.0
LIGHT_RATE, LIGHT_S = 50.0, 3.0
TOGETHER_JOBS, AT_ONCE = 1500, 64
LEAVING_RATE, LEAVING_S = 200.0, 2.0
RARE_JOBS = 30
CODES = "arbgbncadaeletfagaguhehihrhuhyidisjakakkkmknkoltlvmkmlmnmrmsnlnoptroruskslsrtatethtrukurvi"
RARE = list(itertools.permutations((CODES[at : at + 2] for at in range(0, len(CODES), 2)), 2))
# Of the point that is both measured and simulated: its direction has as many nodes as the most
# frequent one of 10,000 people.
POINT = (12, 1)
POINT_RATE, POINT_S, POINT_WARM_S = 207.0, 30.0, 5.0

Tree = dict[str, Any]
Case = Callable[[], Awaitable[dict[str, float]]]


async def prepare(one: CellsService) -> None:
    """Registers the nodes, and fills some cells.

    `de>fr` has room in all cells but the first, `es>it` in all but the first two.
    """
    await one.register("zh", "en", [f"node-{number}" for number in range(NODES)])
    if one.cells == 1:
        return
    for src, tgt, full in (("de", "fr", 1), ("es", "it", 2)):
        if full >= one.cells:
            continue
        for cell in range(one.cells):
            names = one.names_in(cell, 10, f"{src}-{cell}")
            await one.register(src, tgt, names, SLOTS if cell < full else 16 * SLOTS)
        for cell in range(full):
            in_own = Work(src, tgt, partial(_session_in, cell))
            for _ in range(10 * SLOTS):
                await one.begin(in_own)
    await one.register("fi", "sv", one.names_in(1, 10, "rare"), 16 * SLOTS)
    one.spent.spilled = 0


def _session_in(cell: int, dice: random.Random) -> tuple[int, str]:
    return cell, id_in_cell(f"session-{dice.randrange(1000)}", cell)


def _session_that_asks(first: int, cells: int, dice: random.Random) -> tuple[int, str]:
    """A session of the first cell that asks this other cell before all others."""
    while True:
        cell, session = _session_in(0, dice)
        if ranked(session, range(1, cells))[0] == first:
            return cell, session


def cases(one: CellsService) -> dict[str, Case]:
    """The measurements of jobs that stay in their own cell."""
    work = Work("zh", "en", one.anywhere)
    return {
        "steady": lambda: one.steady(work, STEADY_RATE, STEADY_S),
        "light": lambda: one.steady(work, LIGHT_RATE, LIGHT_S),
        "together": lambda: one.together(work, TOGETHER_JOBS, AT_ONCE),
    }


def leaving_cases(one: CellsService, new: "itertools.count[int]") -> dict[str, Case]:
    """The measurements of jobs that leave their own cell, and of the same jobs in it."""

    def steady(src: str, tgt: str, session: Any) -> Case:
        return lambda: one.steady(Work(src, tgt, session), LEAVING_RATE, LEAVING_S)

    def not_in_1(dice: random.Random) -> tuple[int, str]:
        return _session_in(dice.choice([cell for cell in range(one.cells) if cell != 1]), dice)

    found: dict[str, Case] = {
        "own": steady("de", "fr", partial(_session_in, 1)),
        "own is full": steady("de", "fr", partial(_session_in, 0)),
        "nodes in one cell only": steady("fi", "sv", not_in_1),
    }
    if one.cells > 2:
        order = partial(_session_that_asks, 1, one.cells)
        found["own and the next are full"] = steady("es", "it", order)
        found["nodes in one cell only, not known"] = lambda: _unknown(one, new)
        found["the same, known"] = lambda: _known(one, new)
    return found


async def _unknown(one: CellsService, new: "itertools.count[int]") -> dict[str, float]:
    """Jobs one after the other, each the first of a direction that has one node."""
    return await one.sequence([await _rare(one, next(new)) for _ in range(RARE_JOBS)])


async def _known(one: CellsService, new: "itertools.count[int]") -> dict[str, float]:
    """Jobs one after the other of a direction that has one node, which has been looked for."""
    work = await _rare(one, next(new))
    for _ in range(RARE_JOBS):
        await one.end(await one.begin(work))
    return await one.sequence([work] * RARE_JOBS)


async def _rare(one: CellsService, number: int) -> Work:
    """A direction with one node, and sessions in another cell."""
    cell = number % one.cells
    away = (cell + 1 + number // one.cells % (one.cells - 1)) % one.cells
    await one.register(*RARE[number], one.names_in(cell, 1, f"rare-{number}"))
    return Work(*RARE[number], partial(_session_in, away))


async def point(one: CellsService, seed: int = 1) -> Tree:
    """Jobs that fill 70 % of the slots: how many leave their cell, measured and simulated."""
    assumed, dice = Assumptions(), random.Random(seed)
    nodes = nodes_for(POINT_RATE, assumed)
    names = [f"point-{number}" for number in range(nodes)]
    await one.register("pl", "cs", names)
    work = Work("pl", "cs", one.anywhere)
    waiting: deque[asyncio.Future[None]] = deque()
    seen = {"jobs": 0, "waited": 0}

    async def job() -> None:
        seen["jobs"] += 1
        while True:
            try:
                placed = await one.begin(work)
                break
            except RefusedError:
                seen["waited"] += 1
                turn = asyncio.get_running_loop().create_future()
                waiting.append(turn)
                await asyncio.wait([turn], timeout=0.1)
        await asyncio.sleep(dice.expovariate(1 / assumed.job_s))
        await one.end(placed)
        while waiting:
            turn = waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                break

    async def count_from_here() -> None:
        await asyncio.sleep(POINT_WARM_S)
        seen.update(jobs=0, waited=0)
        one.spent.spilled = 0

    await asyncio.gather(
        count_from_here(), at_random(dice, POINT_RATE, POINT_WARM_S + POINT_S, job)
    )
    simulated = [
        Direction(
            slots=slots_by_cell("point", nodes, one.cells, SLOTS),
            weights=[1] * one.cells,
            services=1,
            assumed=assumed,
            dice=random.Random(number),
        )
        .run(POINT_RATE)
        .share("spilled")
        for number in range(9)
    ]
    return {
        "nodes": nodes,
        "cells": one.cells,
        "jobs": seen["jobs"],
        "measured_spilled": one.spent.spilled / seen["jobs"],
        "measured_waited": seen["waited"] / seen["jobs"],
        "simulated_spilled": median(simulated),
        "simulated_least": min(simulated),
        "simulated_most": max(simulated),
    }


async def measure(rounds: int) -> Tree:
    """All measurements."""
    chance, new = random.Random(0), itertools.count()
    async with AsyncExitStack() as stack:
        services: dict[tuple[int, int], CellsService] = {}
        for side in SIDES:
            services[side] = await stack.enter_async_context(cells_service(*side))
            await prepare(services[side])
            print(f"{side[0]} cells on {side[1]} servers are ready", file=sys.stderr)
        await asyncio.gather(*(one.measure_idle(IDLE_S) for one in services.values()))
        todo: dict[tuple[str, tuple[int, int], str], Case] = {}
        for side, one in services.items():
            todo |= {("own", side, name): case for name, case in cases(one).items()}
            if side in LEAVING:
                found = leaving_cases(one, new)
                todo |= {("leaving", side, name): case for name, case in found.items()}
        seen: dict[tuple[str, tuple[int, int], str], list[dict[str, float]]] = {
            key: [] for key in todo
        }
        order = list(todo)
        for number in range(rounds):
            chance.shuffle(order)
            for key in order:
                seen[key].append(await todo[key]())
            print(f"round {number + 1} of {rounds}", file=sys.stderr)
        return {
            "idle": [
                {"cells": cells, "servers": servers, **_idle(one)}
                for (cells, servers), one in services.items()
            ],
            "own": _rows("own", seen, lambda _, case: ((1, 1), case)),
            "leaving": _rows("leaving", seen, lambda side, _: (side, "own")),
            "point": await point(services[POINT]),
        }


def _idle(one: CellsService) -> dict[str, float]:
    idle = one.idle
    return {"cpu_ms_per_s": idle.cpu_us / 1e3, "redis_cpu_ms_per_s": idle.redis_cpu_us / 1e3}


def _rows(
    part: str,
    seen: dict[tuple[str, tuple[int, int], str], list[dict[str, float]]],
    base_of: Callable[[tuple[int, int], str], tuple[tuple[int, int], str]],
) -> list[Tree]:
    """Medians, and the medians of the ratios to another row in the same round."""
    rows = []
    for (this, side, case), costs in seen.items():
        if this != part:
            continue
        base_side, base_case = base_of(side, case)
        base = seen[part, base_side, base_case]
        row: Tree = {"cells": side[0], "servers": side[1], "case": case}
        row |= {name: median(cost[name] for cost in costs) for name in costs[0]}
        row["least"] = {name: min(cost[name] for cost in costs) for name in costs[0]}
        row["ratio"] = {
            name: median(cost[name] / other[name] for cost, other in zip(costs, base, strict=True))
            for name in ("cpu_us", "redis_us", "redis_cpu_us", "calls", "commands")
        }
        rows.append(row)
    return rows


def run(rounds: int) -> Tree:
    """Everything, as one object."""
    # Measured before any process of the benchmark runs.
    load = os.getloadavg()[0]
    measured = asyncio.run(measure(rounds))
    return {
        "machine": machine() | {"load": load},
        "rounds": rounds,
        **measured,
        "plans": plans(measured["leaving"]),
        "by_nodes": spilled_by_nodes(),
    }


def main() -> None:
    """Runs and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--from", dest="file", type=Path, help="an earlier JSON; nothing is run")
    parser.add_argument("--plots", type=Path, help="a folder for charts (SVG)")
    given = parser.parse_args()
    result = json.loads(given.file.read_text(encoding="utf-8")) if given.file else run(given.rounds)
    if given.plots:
        plots(result, given.plots)
    print(json.dumps(result, indent=2) if given.json else table(result))


if __name__ == "__main__":
    main()
