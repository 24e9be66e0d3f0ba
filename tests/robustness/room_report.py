"""What came out for the listeners of rooms, as a row for each kind of client."""

from dataclasses import dataclass, field

from tests.robustness.room_history import ListenerHistory

ROOMS_HEAD = (
    "listeners",
    "stays",
    "outcomes",
    "replayed",
    "missing",
    "changes",
    "lost",
    "reconnected",
    "longest away s",
    "violations",
)


@dataclass
class KindOfListener:
    """All stays of listeners with the same kind of client.

    Attributes:
        outcomes: that they heard live, and those that were said before they came.
        missing: how many of them, by reason.
        reconnected: how many times one lost its gateway and looked for another one.
    """

    kind: str
    stays: int = 0
    outcomes: int = 0
    replayed: int = 0
    missing: dict[str, int] = field(default_factory=dict)
    changes: int = 0
    lost: int = 0
    reconnected: int = 0
    longest_away_s: float = 0.0
    violations: int = 0

    def add(self, listener: ListenerHistory, violations: int) -> None:
        """One more stay."""
        self.stays += 1
        for each in listener.outcomes():
            self.replayed += each["replayed"]
            self.outcomes += not each["replayed"]
            if each["what"] == "missing":
                self.missing[each["reason"]] = self.missing.get(each["reason"], 0) + 1
        self.changes += len(listener.of("changed"))
        self.lost += bool(listener.lost)
        away = [until - since for since, until in listener.away() if until < float("inf")]
        self.reconnected += len(away)
        self.longest_away_s = max([self.longest_away_s, *away])
        self.violations += violations

    def cells(self) -> list[str]:
        """As the table shows it."""
        missing = ", ".join(f"{count} {why}" for why, count in sorted(self.missing.items()))
        return [
            self.kind,
            str(self.stays),
            str(self.outcomes),
            str(self.replayed),
            missing or "0",
            str(self.changes),
            str(self.lost),
            str(self.reconnected),
            f"{self.longest_away_s:.1f}",
            str(self.violations),
        ]
