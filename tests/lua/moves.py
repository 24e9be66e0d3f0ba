"""Moves in the model: a job goes to a node of the asking dispatcher instead of the one drawn.

What a move takes and gives is kept in accounts, one ledger per direction (lua/lib/nearby.lua).
"""

from collections.abc import Iterable, Mapping
from copy import deepcopy

# What the model's scripts have instead of their own number, so that walks reach it.
LEAD = 1
# About as idle: at most this much more load, or one job more than some.
ABOUT = 0.25

Ledgers = dict[str, dict[str, int]]


def may_gain(ledgers: Ledgers, direction: str, account: str) -> bool:
    """Whether moves may bring this account another job."""
    return ledgers.get(direction, {}).get(account, 0) < LEAD


def after_move(ledgers: Ledgers, direction: str, to: str, taken_from: str) -> Ledgers:
    """The ledgers once a job was moved."""
    moved = deepcopy(ledgers)
    ledger = moved.setdefault(direction, {})
    ledger[to] = ledger.get(to, 0) + 1
    ledger[taken_from] = max(-LEAD, ledger.get(taken_from, 0) - 1)
    return moved


def about_as_idle(rank: tuple[float, int], slots: int, best: tuple[float, int]) -> bool:
    """Whether a node with this load and these missed heartbeats may replace the best one."""
    more = max(ABOUT, 1 / slots) if best[0] else ABOUT
    return rank[0] <= best[0] + more and rank[1] <= best[1]


def best(ranks: Mapping[str, tuple[float, int]], only: Iterable[str] | None = None) -> list[str]:
    """Those with the lowest rank, of all or of some."""
    some = ranks if only is None else {name: ranks[name] for name in only if name in ranks}
    lowest = min(some.values(), default=None)
    return [name for name, rank in some.items() if rank == lowest]
