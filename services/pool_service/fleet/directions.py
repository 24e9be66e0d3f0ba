"""The directions that have their own labels in metrics. Pure."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from lingua_scheduler.services.runtime.contract.capabilities import (
    ANY,
    normal,
    speech_pool,
    text_pool,
)
from lingua_scheduler.v1 import pool_pb2

# Enough for sixteen languages with each other, as speech and as text. All others are "other".
MAX_DIRECTIONS = 500
OTHER = "other"


class Direction(NamedTuple):
    """The labels of a direction: `kind` is speech or text, `tgt` may be "any"."""

    kind: str
    src: str
    tgt: str


class Directions:
    """Assigns labels to directions, at most `limit`.

    A direction has its own labels once a node has served it, until this process ends. Directions
    that clients request but no node serves are "other", so clients cannot create labels.
    """

    def __init__(self, limit: int = MAX_DIRECTIONS) -> None:
        self._limit = limit
        self._known: dict[str, Direction] = {}

    def learn(self, pools: Iterable[str]) -> None:
        """Assigns the remaining labels to these pools, in this order."""
        for name in pools:
            if self.is_full:
                return
            if name not in self._known:
                *_, src, tgt = name.split(":")
                self._known[name] = Direction(_kind(name), src, "any" if tgt == ANY else tgt)

    @property
    def is_full(self) -> bool:
        """Whether no label is left, so that further directions are "other"."""
        return len(self._known) >= self._limit

    def pools(self) -> Sequence[str]:
        """Returns the names of the pools that have their own labels."""
        return list(self._known)

    def knows(self, name: str) -> bool:
        """Returns whether a pool has its own labels."""
        return name in self._known

    def of_pool(self, name: str) -> Direction:
        """Returns the labels of a pool."""
        return self._known.get(name) or Direction(_kind(name), OTHER, OTHER)

    def asked_for(self, criteria: pool_pb2.NodeCriteria) -> Direction:
        """Returns the labels of the direction that a job needs."""
        src, tgt = normal(criteria.pair.src), normal(criteria.pair.tgt)
        if criteria.require_tts:
            return self.of_pool(speech_pool(src, tgt))
        name = text_pool(src, tgt)
        return self.of_pool(name if name in self._known else text_pool(src, ANY))


def _kind(pool: str) -> str:
    return "text" if pool.startswith("text:") else "speech"
