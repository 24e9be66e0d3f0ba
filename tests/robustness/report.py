"""What came out: a row per fault, as text, Markdown and JSON."""

import json
import platform
import statistics
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.robustness.history import JAVASCRIPT, ClientHistory, History, Lost
from tests.robustness.room_report import ROOMS_HEAD, KindOfListener
from tests.robustness.validate import Violation
from tests.robustness.validate.recovery import longest_stall, recovery
from tests.robustness.validate.turns import left_turns, turns


@dataclass
class Row:
    """All rounds of one fault.

    Attributes:
        of_javascript: how many of the utterances clients in JavaScript said.
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
    of_javascript: int = 0
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
                self.of_javascript += client.kind == JAVASCRIPT
                if each["what"] == "missing":
                    self.missing[each["reason"]] = self.missing.get(each["reason"], 0) + 1

    def cells(self) -> list[str]:
        """As the table shows it."""
        missing = ", ".join(f"{count} {why}" for why, count in sorted(self.missing.items()))
        return [
            self.fault,
            str(self.runs),
            str(self.utterances),
            str(self.of_javascript),
            str(self.executed),
            missing or "0",
            f"{self.moved_turns}, {self.broken_turns} of {self.turns}",
            ", ".join(map(str, self.lost.values())),
            f"{self.longest_stall_s:.1f}",
            _median_and_most(self.recoveries),
            str(self.violations),
        ]


@dataclass
class KindOfClient:
    """All sessions of clients that use the same SDK.

    Attributes:
        reconnected: how many times a session lost its gateway and looked for another one.
    """

    kind: str
    sessions: int = 0
    utterances: int = 0
    missing: int = 0
    lost_sessions: int = 0
    reconnected: int = 0
    longest_stall_s: float = 0.0
    recoveries: list[float] = field(default_factory=list)
    violations: int = 0

    def add(self, client: ClientHistory, healed: float, violations: int) -> None:
        """One more session; `healed`: when the last fault was over, 0 if there was none."""
        self.sessions += 1
        self.utterances += len(client.outcomes())
        self.missing += len(client.outcomes()) - len(client.results())
        self.lost_sessions += bool(client.lost)
        self.reconnected += sum(each["what"] == "reconnecting" for each in client.events)
        self.longest_stall_s = max(self.longest_stall_s, longest_stall(client))
        if healed and (after := recovery(client, healed)) is not None:
            self.recoveries.append(after)
        self.violations += violations

    def cells(self) -> list[str]:
        """As the table shows it."""
        return [
            self.kind,
            str(self.sessions),
            str(self.utterances),
            str(self.missing),
            str(self.lost_sessions),
            str(self.reconnected),
            f"{self.longest_stall_s:.1f}",
            _median_and_most(self.recoveries),
            str(self.violations),
        ]


def _median_and_most(times: Sequence[float]) -> str:
    median = statistics.median(times) if times else 0.0
    return f"{median:.1f} / {max(times, default=0.0):.1f}"


KINDS_HEAD = (
    "clients",
    "sessions",
    "utterances",
    "missing",
    "lost sessions",
    "reconnected",
    "longest stall s",
    "recovery s p50 / max",
    "violations",
)

HEAD = (
    "fault",
    "runs",
    "utterances",
    "of JavaScript",
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
        self.kinds: dict[str, KindOfClient] = {}
        self.listeners: dict[str, KindOfListener] = {}
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
        for client in history.clients:
            kind = self.kinds.setdefault(client.kind, KindOfClient(client.kind))
            its = sum(each.who == client.name for each in violations)
            kind.add(client, history.healed, its)
        for room in history.rooms:
            for listener in room.listeners:
                which = self.listeners.setdefault(listener.kind, KindOfListener(listener.kind))
                which.add(listener, sum(each.who == listener.name for each in violations))
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
        """The tables: by fault, by kind of client, and by kind of listener."""
        by_fault = [row.cells() for _, row in sorted(self.rows.items())]
        by_kind = [kind.cells() for kind in self.kinds.values()]
        tables = [_markdown(HEAD, by_fault), _markdown(KINDS_HEAD, by_kind)]
        if self.listeners:
            listeners = [kind.cells() for kind in self.listeners.values()]
            tables.append(_markdown(ROOMS_HEAD, listeners))
        return "\n\n".join(tables)

    def write(self, about: str) -> None:
        """Into the folder, if there is one."""
        if self._folder is None:
            return
        about = f"{about}; {platform.processor() or platform.machine()}, {platform.system()}"
        (self._folder / "report.md").write_text(
            f"{about}\n\n{self.totals()}\n\n{self.markdown()}\n"
        )
        told = {"about": about, "rows": [asdict(row) for row in self.rows.values()]}
        told["kinds"] = [asdict(kind) for kind in self.kinds.values()]
        told["listeners"] = [asdict(kind) for kind in self.listeners.values()]
        told["violations"] = [str(each) for each in self.violations]
        (self._folder / "report.json").write_text(json.dumps(told, indent=1))


def _markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(cells) + " |" for cells in (head, *rows)]
    lines.insert(1, "|" + "---|" * len(head))
    return "\n".join(lines)


def plain(rows: Iterable[Sequence[str]]) -> str:
    """A table for a terminal."""
    table = [list(row) for row in rows]
    widths = [max(len(row[at]) for row in table) for at in range(len(table[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    )
