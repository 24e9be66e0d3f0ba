"""Sample nodes that run beside a scheduler on this machine."""

import secrets
from collections.abc import Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from lingua_scheduler.services.runtime.contract.languages import DEFAULT, parse_languages
from lingua_scheduler.services.runtime.settings.settings import Settings

DEMO_LANGS = ("en", "es", "zh", "fr", "de")


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleNode:
    """A sample node to start.

    Attributes:
        node_id: its id.
        langs: languages that it offers, each to each and to itself.
        phrases: file with the sentences that tones stand for.
    """

    node_id: str
    langs: Sequence[str]
    phrases: Path | None = None

    @property
    def command(self) -> list[str]:
        """The command of `lingua` that runs it."""
        command = ["sample-node", "--id", self.node_id, "--langs", ",".join(self.langs)]
        return [*command, "--phrases", str(self.phrases)] if self.phrases else command


def demo_nodes(settings: Settings) -> list[SampleNode]:
    """The nodes of `lingua up --demo`: two, so that the page survives the end of one."""
    # Others may use a given Redis as well, and ids of nodes are unique.
    end = f"-{secrets.token_hex(3)}" if settings.redis_url else ""
    langs = _demo_langs(parse_languages(settings.languages))
    return [SampleNode(node_id=f"demo-{number}{end}", langs=langs) for number in (1, 2)]


def _demo_langs(allowed: Set[str]) -> Sequence[str]:
    """The languages that the scheduler allows, out of those in which the nodes have words."""
    if not allowed or DEFAULT in allowed:
        return DEMO_LANGS
    both = [each for each in DEMO_LANGS if each in allowed]
    return both if len(both) > 1 else sorted(allowed)[: len(DEMO_LANGS)]
