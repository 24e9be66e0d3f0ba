"""What came out: a row per fault, as text, Markdown and JSON."""

import json
import platform
import statistics
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.robustness.history import History, Lost
from tests.robustness.validate import Violation
from tests.robustness.validate.recovery import longest_stall, recovery
from tests.robustness.validate.turns import left_turns, turns


@dataclass
class Row:
    """All rounds of one fault.

    Attributes:
        missing: how many utterances, by reason.
        turns: how many times a sentence had to go on at the node that held what came before.
        moved_turns: how many times it went on elsewhere, with what was held.
        broken_turns: how many times without it; not all are violations, see validate/turns.py.
        lost: of packets, and of pieces where the proxy stood in for the kernel.
        recoveries: of each session, seconds from the fault's end to its next result.
    """

    fault: str
    runs: int = 0
    utterances: int = 0
    executed: int = 0
    missing: dict[str, int] = field(default_factory=dict)
    lost: dict[str, Lost] = field(default_factory=dict)
    turns: int = 0
    moved_turns: int = 0
    broken_turns: int = 0
    lost_sessions: int = 0
    longest_stall_s: float = 0.0
    recoveries: list[float] = field(default_factory=list)
    violations: int = 0

    def add(self, history: History, violations: Sequence[Violation]) -> None:
        """One more round."""
        self.runs += 1
        self.violations += len(violations)
        self.turns += turns(history)
        left = list(left_turns(history))
        self.moved_turns += sum(each.is_whole for each in left)
        self.broken_turns += sum(not each.is_whole for each in left)
        self.executed += sum(len(node.of("started")) for node in history.nodes)
        for each in (struck.lost for struck in history.struck if struck.lost):
            total = self.lost.setdefault(each.what, Lost(each.what, 0, 0))
            total.lost, total.of = total.lost + each.lost, total.of + each.of
        for client in history.clients:
            self.lost_sessions += bool(client.lost)
            self.longest_stall_s = max(self.longest_stall_s, longest_stall(client))
            after = recovery(client, history.healed)
            if after is not None:
                self.recoveries.append(after)
            for each in client.outcomes():
                self.utterances += 1
                if each["what"] == "missing":
                    self.missing[each["reason"]] = self.missing.get(each["reason"], 0) + 1

    def cells(self) -> list[str]:
        """As the table shows it."""
        median = statistics.median(self.recoveries) if self.recoveries else 0.0
        missing = ", ".join(f"{count} {why}" for why, count in sorted(self.missing.items()))
        return [
            self.fault,
            str(self.runs),
            str(self.utterances),
            str(self.executed),
            missing or "0",
            f"{self.moved_turns}, {self.broken_turns} of {self.turns}",
            ", ".join(map(str, self.lost.values())),
            f"{self.longest_stall_s:.1f}",
            f"{median:.1f} / {max(self.recoveries, default=0.0):.1f}",
            str(self.violations),
        ]


HEAD = (
    "fault",
    "runs",
    "utterances",
    "executed",
    "missing",
    "turns moved, broken",
    "packets",
    "longest stall s",
    "recovery s p50 / max",
    "violations",
)


class Report:
    """Collects rounds; where a promise was broken, the round's history and logs are kept.

    Args:
        folder: for all that; without one, a temporary folder is made when there is something to
            keep, and nothing else is written.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.rows: dict[str, Row] = {}
        self.violations: list[Violation] = []
        self._folder = folder
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)

    def add(
        self, history: History, violations: Sequence[Violation], logs: Mapping[str, str]
    ) -> Path | None:
        """One round, and what is wrong with it; returns where it is kept, if it is."""
        # Two at a time have one row: there are too many pairs for one each.
        name = "two at a time" if " + " in history.name else history.name
        self.rows.setdefault(name, Row(name)).add(history, violations)
        self.violations += violations
        if not violations:
            return None
        folder = self._folder or Path(tempfile.mkdtemp(prefix="lingua-robustness-"))
        kept = folder / f"violation-{history.seed}"
        kept.mkdir(exist_ok=True)
        history.write(kept / "history.json")
        for process, log in logs.items():
            (kept / f"{process}.log").write_text(log)
        return kept

    def totals(self) -> str:
        """The whole run in a line."""
        rows = self.rows.values()
        return (
            f"{sum(row.runs for row in rows)} rounds,"
            f" {sum(row.utterances for row in rows)} utterances,"
            f" {sum(sum(row.missing.values()) for row in rows)} missing,"
            f" {sum(row.moved_turns for row in rows)} turns moved and"
            f" {sum(row.broken_turns for row in rows)} broken of {sum(row.turns for row in rows)},"
            f" {len(self.violations)} violations"
        )

    def markdown(self) -> str:
        """The table."""
        rows = [HEAD, *(row.cells() for _, row in sorted(self.rows.items()))]
        lines = ["| " + " | ".join(cells) + " |" for cells in rows]
        lines.insert(1, "|" + "---|" * len(HEAD))
        return "\n".join(lines)

    def write(self, about: str) -> None:
        """Into the folder, if there is one."""
        if self._folder is None:
            return
        about = f"{about}; {platform.processor() or platform.machine()}, {platform.system()}"
        (self._folder / "report.md").write_text(
            f"{about}\n\n{self.totals()}\n\n{self.markdown()}\n"
        )
        told = {"about": about, "rows": [asdict(row) for row in self.rows.values()]}
        told["violations"] = [str(each) for each in self.violations]
        (self._folder / "report.json").write_text(json.dumps(told, indent=1))


def plain(rows: Iterable[Sequence[str]]) -> str:
    """A table for a terminal."""
    table = [list(row) for row in rows]
    widths = [max(len(row[at]) for row in table) for at in range(len(table[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    )
