"""Searching, filtering and sorting nodes: one page of many thousand."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from lingua_scheduler.services.console.store.fleet import Fleet
from lingua_scheduler.services.console.store.node import GROUPS, FleetNode
from lingua_scheduler.services.console.store.pages import page_of

_RANKS = {name: rank for rank, name in enumerate(GROUPS)}

SORTS: dict[str, Callable[[FleetNode], Any]] = {
    "id": lambda node: node.node_id,
    "health": lambda node: (_RANKS[node.group], node.node_id),
    "free": lambda node: (node.free, node.node_id),
    "used": lambda node: (node.used, node.node_id),
    "load": lambda node: (node.load, node.node_id),
    "failures": lambda node: (node.failures, node.node_id),
    "instance": lambda node: (node.instance, node.node_id),
    "cell": lambda node: (node.cell, node.node_id),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeQuery:
    """What is asked for. Empty texts stand for anything."""

    search: str = ""
    health: str = ""
    src: str = ""
    tgt: str = ""
    sort: str = "id"
    desc: bool = False
    offset: int = 0
    limit: int = 50


@dataclass(frozen=True, slots=True)
class NodePage:
    """The nodes of one page, how many match, and how many would match for each health."""

    nodes: Sequence[FleetNode]
    total: int
    counts: dict[str, int]


def node_page(fleet: Fleet, query: NodeQuery) -> NodePage:
    """Finds the nodes of a page. `Fleet.settle` has to be called before."""
    found: Sequence[FleetNode] = list(fleet.nodes.values())
    if query.search:
        needle = query.search.lower()
        found = [node for node in found if needle in node.node_id.lower()]
    if query.src or query.tgt:
        sets = fleet.sets_that_serve(query.src, query.tgt)
        found = [node for node in found if node.capability_set in sets]
    is_all = len(found) == len(fleet.nodes)
    groups = fleet.groups if is_all else Counter(node.group for node in found)
    if query.health:
        found = [node for node in found if node.group == query.health]
    counts = {group: groups[group] for group in GROUPS}
    page = page_of(
        found, key=SORTS[query.sort], desc=query.desc, offset=query.offset, limit=query.limit
    )
    return NodePage(page, len(found), counts)
