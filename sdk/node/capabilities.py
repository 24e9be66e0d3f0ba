"""Checks what a node declares, by the rules of the contract. Errors are ValueErrors."""

from collections.abc import Iterable, Sequence

from lingua_scheduler.sdk.types import Pair, Stage
from lingua_scheduler.sdk.validate import check_language
from lingua_scheduler.v1 import common_pb2

MAX_LANGUAGES = 256
MAX_PAIRS = 16384
MAX_SLOTS = 1000


def check_slots(value: int) -> int:
    """Returns the number of slots."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_SLOTS:
        raise ValueError(f"slots: {value!r} must be a whole number from 1 to {MAX_SLOTS}")
    return value


def capabilities(
    *,
    asr: Sequence[str],
    semantic: Sequence[str],
    tts: Sequence[str],
    nmt: Iterable[tuple[str, str]],
    stages: Iterable[Stage],
) -> common_pb2.NodeCapabilities:
    """Returns the node's capabilities as a message."""
    pairs = [_pair(at, pair) for at, pair in enumerate(nmt)]
    if len(pairs) > MAX_PAIRS:
        raise ValueError(f"nmt: has {len(pairs)} directions; at most {MAX_PAIRS} are allowed")
    return common_pb2.NodeCapabilities(
        asr_langs=_languages("asr", asr),
        semantic_langs=_languages("semantic", semantic),
        tts_langs=_languages("tts", tts, optional=True),
        nmt_pairs=[common_pb2.LanguagePair(src=pair.src, tgt=pair.tgt) for pair in pairs],
        stages=[common_pb2.StageKind.ValueType(Stage(stage)) for stage in stages],
    )


def _languages(name: str, values: Sequence[str], *, optional: bool = False) -> list[str]:
    if isinstance(values, str):
        raise ValueError(f"{name}: {values!r} must be a list of languages, such as [{values!r}]")
    if not (values or optional):
        raise ValueError(f"{name}: must name at least one language, such as 'en'")
    if len(values) > MAX_LANGUAGES:
        raise ValueError(f"{name}: has {len(values)} languages; at most {MAX_LANGUAGES}")
    return [check_language(f"{name}[{at}]", value) for at, value in enumerate(values)]


def _pair(at: int, pair: tuple[str, str]) -> Pair:
    name = f"nmt[{at}]"
    if isinstance(pair, str) or len(pair) != 2:
        raise ValueError(f"{name}: {pair!r} must be a pair such as ('en', 'zh')")
    return Pair(check_language(f"{name}.src", pair[0]), check_language(f"{name}.tgt", pair[1]))
