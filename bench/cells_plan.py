"""How many masters and cells large fleets need: `cells_model.py` with measured costs."""

import math
from statistics import mean
from typing import Any

from capacity import Costs
from cells_model import (
    Assumptions,
    Tally,
    direction_rates,
    jobs_per_s,
    nodes_for,
    simulate,
)

PEOPLE = (10_000, 100_000, 1_000_000)
CELLS = (1, 2, 4, 8, 12, 24, 48, 72, 96, 144)
# A small fleet depends on where its few nodes happen to be.
FLEETS = {10_000: 5, 100_000: 3, 1_000_000: 1}
# The share of its thread that a master may use.
MASTER_SHARE = 0.6
BEAT_S = 5.0
# For the rule of thumb: nodes per direction and cell, in twelve cells.
NODES_A_CELL = (0.5, 1, 2, 4, 8, 16, 32, 64)
OCCUPANCIES = (0.5, 0.7, 0.85)

Tree = dict[str, Any]


def extra_us(leaving: list[Tree], side: tuple[int, int] = (12, 1)) -> dict[str, float]:
    """CPU of Redis that is spent in addition to a job in its own cell, from the measurements.

    `spilled`: that is full, and the first cell that is asked has room. `full` and `without`: a
    further cell that is asked is full, or has no node for the direction.
    """
    cost = {
        row["case"]: row["redis_cpu_us"]
        for row in leaving
        if (row["cells"], row["servers"]) == side
    }
    calls = {row["case"]: row["calls"] for row in leaving if (row["cells"], row["servers"]) == side}
    unknown, known = "nodes in one cell only, not known", "the same, known"
    asked = max(0.01, calls[unknown] - calls[known])
    return {
        "spilled": max(0.0, cost["own is full"] - cost["own"]),
        "full": max(0.0, cost["own and the next are full"] - cost["own is full"]),
        "without": max(0.0, (cost[unknown] - cost[known]) / asked),
    }


def plans(leaving: list[Tree]) -> Tree:
    """What each number of people needs, by the number of cells."""
    assumed, extra = Assumptions(), extra_us(leaving)
    rows = []
    for people in PEOPLE:
        rates = direction_rates(people, assumed)
        nodes = sum(nodes_for(rate, assumed) for rate in rates)
        for cells in CELLS:
            tally = Tally()
            for seed in range(FLEETS[people]):
                tally.add(simulate(people, cells, assumed, seed))
            rows.append(
                {
                    "people": people,
                    "cells": cells,
                    "jobs_per_s": jobs_per_s(people, assumed),
                    "nodes": nodes,
                    "nodes_per_direction_and_cell": nodes / cells / assumed.directions,
                    **{name: tally.share(name) for name in vars(tally) if name != "jobs"},
                    **needs(people, cells, nodes, tally, extra, assumed),
                }
            )
    return {"assumed": vars(assumed), "extra_us": extra, "rows": rows}


def needs(
    people: int,
    cells: int,
    nodes: int,
    tally: Tally,
    extra: dict[str, float],
    assumed: Assumptions,
) -> Tree:
    """Redis time and masters.

    The base is the Redis CPU of a job on the whole path (`capacity.py`), with what gateways and
    dispatchers store. A job that is told to wait costs as much as a cell that is full.
    """
    costs = Costs()
    more_us = sum(tally.share(name) * us for name, us in extra.items())
    more_us += tally.share("refused") * extra["full"]
    base_us = costs.redis_ms * 1e3
    jobs = jobs_per_s(people, assumed)
    busy = jobs * (base_us + more_us) / 1e6 + nodes / BEAT_S * costs.redis_beat_us / 1e6
    return {
        "extra_redis": more_us / base_us,
        "busy_masters": busy,
        "masters": masters_for(busy, cells),
    }


def masters_for(busy: float, cells: int) -> int:
    """The least number of masters, of which none is too busy; 0 if the cells are too few.

    Cells cannot be divided: the master with the most of them decides.
    """
    for masters in range(1, cells + 1):
        if math.ceil(cells / masters) / cells * busy <= MASTER_SHARE:
            return masters
    return 0


def spilled_by_nodes() -> Tree:
    """The share of jobs that leave their cell, by the nodes that a direction has in each cell."""
    cells = 12
    lines: dict[str, list[float]] = {}
    for occupancy in OCCUPANCIES:
        line = []
        for count in NODES_A_CELL:
            assumed = Assumptions(directions=1, occupancy=occupancy)
            rate = count * cells * assumed.slots * occupancy / assumed.job_s
            people = round(rate * assumed.utterance_every_s * assumed.people_a_session)
            seeds = range(12 if count < 16 else 4)
            line.append(
                mean(simulate(people, cells, assumed, seed).share("spilled") for seed in seeds)
            )
        lines[f"{occupancy:.0%} busy"] = line
    return {"cells": cells, "nodes_a_cell": NODES_A_CELL, "spilled": lines}
