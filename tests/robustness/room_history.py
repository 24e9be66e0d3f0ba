"""What a listener of a room has written down; plain facts, as in history.py.

Records, each with `t` and `what`:

    joined         `position`, `language`, and what it `wants`; again after each reconnection
    said           an outcome: `index`, `language`, `spoken` (language), `session`, `kind`, `words`,
                   `joined`, `replayed`, `speech` (None: there was none) and `original` (words),
                   `published_ms`; of a WebSocket also `previous`, which the SDK checks itself
    missing        an outcome: `index`, `until`, `language`, `session`, `reason`, `replayed`
    changing       it asked for `language`
    changed        `language` from `position` on
    refused        the change has failed: `reason`
    reconnecting   it has lost its gateway
    repeated       it got `count` outcomes again
    problem        what else it was told: `reason`. OUT_OF_ORDER: the chain had a hole
    closed         the room is closed
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from tests.support.records import Record

SDK, WEBSOCKET = "SDK", "WebSocket"


class Leg(NamedTuple):
    """What a listener was due: the outcomes of a language with first <= room index < until.

    Attributes:
        language: "" if it was changing its language when it lost its gateway, so that nobody can
            say which one.
    """

    language: str
    first: int
    until: float


@dataclass
class ListenerHistory:
    """One stay in a room, as its app saw it. Whoever leaves and comes back has two.

    Attributes:
        kind: of the client: the SDK, or a WebSocket by hand.
        left: when it left by itself; 0: it stayed until the room was closed.
        lost: why it could not stay, or "".
    """

    name: str
    kind: str = SDK
    events: list[Record] = field(default_factory=list)
    left: float = 0.0
    lost: str = ""

    def of(self, *what: str) -> list[Record]:
        """Only these."""
        return [each for each in self.events if each["what"] in what]

    def outcomes(self) -> list[Record]:
        """What it heard, in the order in which it came."""
        return self.of("said", "missing")

    def away(self) -> list[tuple[float, float]]:
        """When it had no gateway: from, to."""
        found: list[tuple[float, float]] = []
        since = 0.0
        for each in self.of("reconnecting", "joined"):
            if each["what"] == "reconnecting":
                since = since or each["t"]
            elif since:
                found.append((since, each["t"]))
                since = 0.0
        return [*found, (since, float("inf"))] if since else found

    def legs(self) -> list[Leg]:
        """What it was due, in the order of room indexes."""
        legs = _Legs()
        for each in self.events:
            legs.on(each)
        return legs.legs


class _Legs:
    """Follows the languages of one listener."""

    def __init__(self) -> None:
        self.legs: list[Leg] = []
        self._position = 0
        self._asked = self._is_unsure = False

    def on(self, event: Record) -> None:
        """The next event."""
        match event["what"]:
            case "joined":
                self._on_joined(event)
            case "said" | "missing":
                self._position = max(self._position, until_of(event))
            case "changing":
                self._asked = True
            case "refused":
                self._asked = False
            case "changed":
                self._asked = False
                self._begin(event["language"], event["position"])
            case "reconnecting":
                # Outcomes of the language before may be due still, or those of the next already.
                changed = bool(self.legs) and self.legs[-1].first > self._position
                self._is_unsure = self._is_unsure or self._asked or changed

    def _on_joined(self, event: Record) -> None:
        position = max(self._position, event["position"])
        if not self.legs:
            self._position = position
            self._begin(event["language"], position)
        elif self._is_unsure:
            self._begin("", self._position)
            self._begin(event["language"], position)
        self._asked = self._is_unsure = False

    def _begin(self, language: str, first: int) -> None:
        ended = [each._replace(until=min(each.until, first)) for each in self.legs]
        self.legs = [each for each in ended if each.first < each.until]
        self.legs.append(Leg(language, first, float("inf")))


def until_of(outcome: Record) -> int:
    """The first room index that may follow an outcome."""
    return max(int(outcome.get("until") or 0), int(outcome["index"]) + 1)
