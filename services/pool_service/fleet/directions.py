"""The directions that have a label of their own in metrics. Pure."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from lingua_scheduler.services.runtime.contract.capabilities import (
    ANY,
    normal,
    speech_pool,
    text_pool,
)
from lingua_scheduler.v1 import pool_pb2

# Sixteen languages with one another, as speech and as text. Beyond the limit a label says "other".
MAX_DIRECTIONS = 500
OTHER = "other"


class Direction(NamedTuple):
    """The labels of a direction: `kind` is speech or text, `tgt` may be "any"."""

    kind: str
    src: str
    tgt: str


class Directions:
    """Gives directions their labels, and never more than `limit`.

    A direction has labels of its own once a node has served it, for as long as this process lives.
    What clients ask for and nobody serves is "other", so no client can make labels.
    """

    def __init__(self, limit: int = MAX_DIRECTIONS) -> None:
        self._limit = limit
        self._known: dict[str, Direction] = {}

    def learn(self, pools: Iterable[str]) -> None:
        """There are pools of these names; those that come first get the labels that are left."""
        for name in pools:
            if self.is_full:
                return
            if name not in self._known:
                *_, src, tgt = name.split(":")
                self._known[name] = Direction(_kind(name), src, "any" if tgt == ANY else tgt)

    @property
    def is_full(self) -> bool:
        """Whether no label is left: further directions are "other"."""
        return len(self._known) >= self._limit

    def pools(self) -> Sequence[str]:
        """The names of the pools that have labels of their own."""
        return list(self._known)

    def knows(self, name: str) -> bool:
        """Whether a pool has labels of its own."""
        return name in self._known

    def of_pool(self, name: str) -> Direction:
        """The labels of a pool."""
        return self._known.get(name) or Direction(_kind(name), OTHER, OTHER)

    def asked_for(self, criteria: pool_pb2.NodeCriteria) -> Direction:
        """The labels of what a job needs."""
        src, tgt = normal(criteria.pair.src), normal(criteria.pair.tgt)
        if criteria.require_tts:
            return self.of_pool(speech_pool(src, tgt))
        name = text_pool(src, tgt)
        return self.of_pool(name if name in self._known else text_pool(src, ANY))


def _kind(pool: str) -> str:
    return "text" if pool.startswith("text:") else "speech"
