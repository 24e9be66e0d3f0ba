"""The capabilities of nodes, each distinct set once. Pure."""

import json
from collections import Counter
from collections.abc import Sequence

from lingua_scheduler.services.runtime.contract.capabilities import Capabilities, stages_of
from lingua_scheduler.v1 import common_pb2, pool_pb2

LANGUAGE_FIELDS = ("asr_langs", "semantic_langs", "tts_langs", "nmt_pairs")
"""The fields of a node's record (lua/register_node.lua) that say which languages it has."""

# What all distinct sets may take. A set of 16,384 pairs has about 200 KB, so ordinary fleets, whose
# nodes share a few sets, stay far below; nodes that each declare another large set do not.
MAX_BYTES = 64 * 1024 * 1024


def capabilities_of(languages: Sequence[bytes | None], stages: int) -> Capabilities:
    """The capabilities of a node.

    Args:
        languages: the values of LANGUAGE_FIELDS.
        stages: bit mask of the node's packed record.
    """
    asr, semantic, tts, nmt = (tuple(json.loads(listed or b"[]")) for listed in languages)
    return Capabilities(asr, semantic, tts, nmt, stages)


def declared(capabilities: Capabilities) -> common_pb2.NodeCapabilities:
    """The same as a message of the contract."""
    return common_pb2.NodeCapabilities(
        asr_langs=capabilities.asr_langs,
        semantic_langs=capabilities.semantic_langs,
        tts_langs=capabilities.tts_langs,
        nmt_pairs=[
            common_pb2.LanguagePair(src=src, tgt=tgt)
            for src, tgt in (pair.split(":") for pair in capabilities.nmt_pairs)
        ],
        stages=stages_of(capabilities.stages),
    )


def set_id(digest: str, stages: int) -> str:
    """The id of a set: the digest of its languages says nothing about the stages."""
    return f"{digest}-{stages:02x}"


class CapabilitySets:
    """The sets that nodes refer to, of limited size in all.

    Args:
        max_bytes: the most bytes of all sets together.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._sets: dict[str, tuple[pool_pb2.CapabilitySet, int]] = {}
        self._nodes: Counter[str] = Counter()

    def __len__(self) -> int:
        """Number of distinct sets."""
        return len(self._sets)

    def get(self, known_id: str) -> pool_pb2.CapabilitySet | None:
        """A set by its id; None if it is not kept."""
        found = self._sets.get(known_id)
        return found[0] if found else None

    @property
    def is_full(self) -> bool:
        """Whether no further set is kept."""
        return self._bytes >= self._max_bytes

    def add(self, capabilities: Capabilities) -> pool_pb2.CapabilitySet | None:
        """Keeps a set, and returns it; None if there is no room for it."""
        known_id = set_id(capabilities.digest(), capabilities.stages)
        if found := self.get(known_id):
            return found
        if self.is_full:
            return None
        added = pool_pb2.CapabilitySet(id=known_id, capabilities=declared(capabilities))
        size = added.ByteSize()
        self._sets[known_id] = added, size
        self._bytes += size
        return added

    def hold(self, known_id: str) -> None:
        """A node refers to the set; "" is ignored."""
        if known_id:
            self._nodes[known_id] += 1

    def release(self, known_id: str) -> None:
        """A node does so no longer."""
        if known_id:
            self._nodes[known_id] -= 1

    def drop_unused(self) -> None:
        """Forgets the sets that no node refers to."""
        self._nodes += Counter()  # without the zeros
        for known_id in self._sets.keys() - self._nodes.keys():
            self._bytes -= self._sets.pop(known_id)[1]
