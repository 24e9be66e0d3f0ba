"""How many jobs find no room in their own cell, by an event simulation of the slots.

Pure: no Redis, no clock. Each direction has its own nodes, which are spread over the cells by their
ids as in the service (`cell_names.ranked`); sessions are spread at random. A job takes a slot in
the cell of its session, or asks other cells in an order of its session's own, as
`pool_service/attempts/elsewhere.py` does. If that fails, it waits in line at its dispatcher:
whenever a slot is given back there, and every now and then, the first in line asks again, and as
long as there is room, the next (`dispatcher/home/waiting_rounds.py`).
"""

import heapq
import math
import random
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from lingua_scheduler.services.runtime.contract.cell_names import ranked

# pool_service/attempts/across_cells.py
REMEMBER_S = 1.0
# dispatcher/home/leases.py: how often those who wait ask if no slot is given back there.
POLL_S = 0.1
# Simulated before anything is counted, and at least counted.
WARM_JOB_TIMES = 5
COUNT_S, COUNT_JOBS = 2.0, 4000


@dataclass(frozen=True)
class Assumptions:
    """Assumptions about people, nodes and settings."""

    people_a_session: int = 2
    utterance_every_s: float = 6.0
    """Of a session: the two take turns."""
    directions: int = 30
    zipf: float = 1.0
    """The share of the n-th direction is proportional to n ** -zipf."""
    job_s: float = 1.0
    slots: int = 4
    occupancy: float = 0.7
    """Of all slots of a direction."""
    tries: int = 3
    """LINGUA_CELL_TRIES."""
    jobs_a_process: float = 500.0
    """Jobs per second of one pool service and of one dispatcher."""


@dataclass
class Tally:
    """What became of the jobs."""

    jobs: int = 0
    spilled: int = 0
    """Placed in another cell than their own."""
    full: int = 0
    """Other cells that were asked and were full."""
    without: int = 0
    """Other cells that were asked and had no node for the direction."""
    refused: int = 0
    """Times that a job was told to wait."""
    waited: int = 0
    """Jobs that had to wait."""

    def add(self, other: "Tally") -> None:
        """Adds another one."""
        for name in vars(self):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def share(self, name: str) -> float:
        """Of all jobs."""
        return float(getattr(self, name)) / max(1, self.jobs)


def jobs_per_s(people: int, assumed: Assumptions) -> float:
    """Of all directions."""
    return people / assumed.people_a_session / assumed.utterance_every_s


def direction_rates(people: int, assumed: Assumptions) -> list[float]:
    """Jobs per second of each direction, the most frequent one first."""
    weights = [(n + 1) ** -assumed.zipf for n in range(assumed.directions)]
    return [jobs_per_s(people, assumed) * each / sum(weights) for each in weights]


def nodes_for(rate: float, assumed: Assumptions) -> int:
    """Nodes of a direction with so many jobs per second."""
    return max(1, math.ceil(rate * assumed.job_s / (assumed.slots * assumed.occupancy)))


def slots_by_cell(prefix: str, nodes: int, cells: int, slots: int) -> list[int]:
    """The slots of a direction in each cell."""
    counted = Counter(ranked(f"{prefix}-{n}", range(cells))[0] for n in range(nodes))
    return [slots * counted[cell] for cell in range(cells)]


def simulate(people: int, cells: int, assumed: Assumptions, seed: int) -> Tally:
    """All directions of one fleet."""
    dice, total = random.Random(f"{people} {cells} {seed}"), Tally()
    services = max(1, round(jobs_per_s(people, assumed) / assumed.jobs_a_process))
    rates = direction_rates(people, assumed)
    for number, rate in enumerate(rates):
        slots = slots_by_cell(
            f"node-{seed}-{number}", nodes_for(rate, assumed), cells, assumed.slots
        )
        sessions = max(1, round(rate * assumed.utterance_every_s))
        own_cells = Counter(dice.choices(range(cells), k=sessions))
        found = Direction(
            slots=slots,
            weights=[own_cells[cell] for cell in range(cells)],
            services=services,
            assumed=assumed,
            dice=dice,
        ).run(rate)
        # Each direction counts as much as it has jobs, however many were simulated.
        total.add(_scaled(found, rate / sum(rates)))
    return total


def _scaled(tally: Tally, share: float) -> Tally:
    by = share * 1e6 / tally.jobs
    return Tally(**{name: round(value * by) for name, value in vars(tally).items()})


class Direction:
    """The slots of one direction in all cells.

    Args:
        slots: in each cell.
        weights: of each cell, in the choice of the cell of a job.
        services: pool services, each of which remembers cells without nodes; as many dispatchers.
    """

    def __init__(
        self,
        *,
        slots: Sequence[int],
        weights: Sequence[float],
        services: int,
        assumed: Assumptions,
        dice: random.Random,
    ) -> None:
        self._slots = list(slots)
        self._free = list(slots)
        self._cells = range(len(slots))
        self._own_cells = list(accumulate(weights))
        self._services = services
        self._assumed = assumed
        self._dice = dice
        self._known_until: dict[tuple[int, int], float] = {}
        # For each dispatcher where jobs wait: their cells, and when one last asked.
        self._lines: dict[int, deque[int]] = {}
        self._asked_at: dict[int, float] = {}
        # When jobs end: time, cell, dispatcher.
        self._ends: list[tuple[float, int, int]] = []
        self._tally = Tally()

    def run(self, rate: float) -> Tally:
        """Simulates jobs that come at random, so many a second."""
        dice, job_s = self._dice, self._assumed.job_s
        warm = WARM_JOB_TIMES * job_s
        end = warm + max(COUNT_S, COUNT_JOBS / rate)
        now, counts = 0.0, False
        while (now := now + dice.expovariate(rate)) < end:
            self._end_jobs(now)
            if now > warm and not counts:
                counts, self._tally = True, Tally()
            (own,) = dice.choices(self._cells, cum_weights=self._own_cells)
            at = dice.randrange(self._services)
            self._tally.jobs += 1
            if at in self._lines or not self._place(own, at, now):
                self._lines.setdefault(at, deque()).append(own)
                self._asked_at.setdefault(at, now)
                self._tally.waited += 1
        return self._tally

    def _end_jobs(self, now: float) -> None:
        while self._ends and self._ends[0][0] <= now:
            then, cell, at = heapq.heappop(self._ends)
            self._free[cell] += 1
            if at in self._lines:
                self._ask_in_line(at, then)
        for at in [at for at, asked in self._asked_at.items() if now - asked > POLL_S]:
            self._ask_in_line(at, now)

    def _ask_in_line(self, at: int, now: float) -> None:
        line = self._lines[at]
        self._asked_at[at] = now
        while line and self._place(line[0], at, now):
            line.popleft()
        if not line:
            del self._lines[at], self._asked_at[at]

    def _place(self, own: int, at: int, now: float) -> bool:
        """Takes a slot, in its own cell or elsewhere."""
        cell: int | None = own
        if not self._free[own]:
            cell = self._elsewhere(own, now)
        if cell is None:
            self._tally.refused += 1
            return False
        self._free[cell] -= 1
        ends = now + self._dice.expovariate(1 / self._assumed.job_s)
        heapq.heappush(self._ends, (ends, cell, at))
        return True

    def _elsewhere(self, own: int, now: float) -> int | None:
        service, tries = self._dice.randrange(self._services), self._assumed.tries
        order = [cell for cell in self._cells if cell != own]
        self._dice.shuffle(order)
        order.sort(key=lambda cell: self._known_until.get((service, cell), 0.0) > now)
        for cell in order:
            if self._free[cell]:
                self._tally.spilled += 1
                return cell
            if self._slots[cell]:
                self._tally.full += 1
                tries -= 1
            else:
                self._tally.without += 1
                self._known_until[service, cell] = now + REMEMBER_S
            if tries <= 0:
                break
        return None
