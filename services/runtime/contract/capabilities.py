"""The capabilities of a node, and the pools that follow from them."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass

from lingua_scheduler.v1 import common_pb2

ANY = "*"


normal = str.lower
"""Normalizes a language code, as it is stored and compared."""


def speech_pool(src: str, tgt: str) -> str:
    """Name of the pool of a direction."""
    return f"{src}:{tgt}"


def text_pool(src: str, tgt: str) -> str:
    """Name of the pool of a direction for jobs without speech; tgt "*" for any language."""
    return f"text:{src}:{tgt}"


def stage_mask(stages: Iterable[common_pb2.StageKind.ValueType]) -> int:
    """A bit mask of stages, as the scripts compare them."""
    mask = 0
    for stage in stages:
        mask |= 1 << (stage - 1)
    return mask


def stages_of(mask: int) -> list[common_pb2.StageKind.ValueType]:
    """The stages whose bits are set."""
    return [stage for stage in common_pb2.StageKind.values()[1:] if mask >> (stage - 1) & 1]


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Capabilities that a node declares, normalized: equal capabilities are equal values."""

    asr_langs: tuple[str, ...]
    semantic_langs: tuple[str, ...]
    tts_langs: tuple[str, ...]
    nmt_pairs: tuple[str, ...]
    stages: int

    @classmethod
    def of(cls, declared: common_pb2.NodeCapabilities) -> "Capabilities":
        """Normalizes a message that has been checked."""
        stages = {
            common_pb2.STAGE_KIND_ASR,
            common_pb2.STAGE_KIND_SEMANTIC,
            common_pb2.STAGE_KIND_NMT,
            *declared.stages,
        }
        if declared.tts_langs:
            stages.add(common_pb2.STAGE_KIND_TTS)
        return cls(
            asr_langs=_sorted(declared.asr_langs),
            semantic_langs=_sorted(declared.semantic_langs),
            tts_langs=_sorted(declared.tts_langs),
            nmt_pairs=_sorted(f"{pair.src}:{pair.tgt}" for pair in declared.nmt_pairs),
            stages=stage_mask(stages),
        )

    def digest(self) -> str:
        """A hash of the capabilities that decide the pools of the node."""
        languages = [self.asr_langs, self.semantic_langs, self.tts_langs, self.nmt_pairs]
        return hashlib.sha256(json.dumps(languages).encode()).hexdigest()[:32]

    def pools(self) -> set[str]:
        """Names of the pools that the node belongs in.

        The node must recognise and repair the source language, translate the direction, and, for
        speech, speak the target language.
        """
        sources = set(self.asr_langs) & set(self.semantic_langs)
        if not self.nmt_pairs:
            pools = {speech_pool(src, tgt) for src in sources for tgt in self.tts_langs}
            return pools | {text_pool(src, ANY) for src in sources}
        spoken = set(self.tts_langs)
        pools = set()
        for src, tgt in (pair.split(":") for pair in self.nmt_pairs):
            if src in sources:
                pools.add(text_pool(src, tgt))
                if tgt in spoken:
                    pools.add(speech_pool(src, tgt))
        return pools


def _sorted(codes: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({normal(code) for code in codes}))
