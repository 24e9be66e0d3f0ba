"""Sentences that tones stand for: each has a tone with its own pitch.

A sentence is right only if the node received the right tone, and complete only if it received all
of it. `make run` uses that to check what was delivered.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Phrase:
    """A sentence: the pitch of its tone, its duration, and its translations."""

    hertz: int
    seconds: float
    texts: dict[str, str]

    def in_language(self, language: str, spoken_s: float) -> str:
        """As much of the sentence as was spoken in this time; "" if it has no such translation."""
        text = self.texts.get(language, "")
        heard = round(len(text) * spoken_s / self.seconds)
        return text if heard >= len(text) else f"{text[:heard].rstrip()}…"


def write_phrases(path: Path, phrases: Iterable[Phrase]) -> None:
    """Write phrases to a file for nodes."""
    path.write_text(json.dumps([asdict(each) for each in phrases]))


def read_phrases(path: Path) -> list[Phrase]:
    """Read the file of `write_phrases`."""
    return [Phrase(**each) for each in json.loads(path.read_text())]
