"""What clients, nodes and faults have written down: plain facts, as JSON and back.

All times are seconds of the machine's monotonic clock, which all its processes share.
"""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.robustness.room_history import ListenerHistory
from tests.support.records import Record

PYTHON, JAVASCRIPT = "Python", "JavaScript"


@dataclass
class ClientHistory:
    """One session, as its app saw it.

    Attributes:
        kind: of the client: which SDK it uses.
        said: a time and a word, in the order in which they were said.
        events: what came: `t`, `what`, `index` and more, see traffic/client.py.
        partial_interval_ms: how often it wants partial texts at most; 0: never.
        lost: why the session could not be brought to its end, or "".
    """

    name: str
    kind: str = PYTHON
    session: str = ""
    said: list[tuple[float, int]] = field(default_factory=list)
    events: list[Record] = field(default_factory=list)
    partial_interval_ms: int = 0
    lost: str = ""

    def outcomes(self) -> list[Record]:
        """Results and missing ones, in the order in which they came."""
        return [each for each in self.events if each["what"] in ("result", "missing")]

    def results(self) -> list[Record]:
        """Only the results."""
        return [each for each in self.events if each["what"] == "result"]


@dataclass
class RoomHistory:
    """One room.

    Attributes:
        speakers: their sessions; in place of results they have receipts.
        who: by what name nodes know each speaker, by the speaker's name.
        listeners: in the order in which they came.
        lost: why the room could not be used until its end, or "".
    """

    name: str
    speakers: list[ClientHistory] = field(default_factory=list)
    who: dict[str, str] = field(default_factory=dict)
    listeners: list[ListenerHistory] = field(default_factory=list)
    lost: str = ""


@dataclass
class NodeHistory:
    """One node over all its processes.

    Attributes:
        records: `t`, `what` and more, see traffic/node_program.py.
    """

    node: str
    slots: int
    records: list[Record] = field(default_factory=list)

    def of(self, *what: str) -> list[Record]:
        """Only these."""
        return [each for each in self.records if each["what"] in what]


ANY_NODE = frozenset({"any node"})


@dataclass(frozen=True)
class Excuses:
    """What a fault may cost (docs/robustness.md). Without an entry: nothing.

    Attributes:
        missing: reasons with which an utterance may be missing.
        turns: nodes whose turns may go on elsewhere; ANY_NODE: of each. A fault that struck nodes
            by name excuses those only, see `choice.excuses_of`. No word is lost by that.
        held: audio that a node holds may be lost.
        capacity: the leases are gone, so a node may get more than it has slots for.
        sessions: reasons for which a session, or a listener, may be lost.
        rooms: what Redis knew of rooms may be gone: their members, and outcomes that nobody read.
        overdue: utterances of rooms may become overdue at once, whatever their speakers are told.
    """

    missing: frozenset[str] = frozenset()
    turns: frozenset[str] = frozenset()
    held: bool = False
    capacity: bool = False
    sessions: frozenset[str] = frozenset()
    rooms: bool = False
    overdue: bool = False

    def __or__(self, other: "Excuses") -> "Excuses":
        return Excuses(
            missing=self.missing | other.missing,
            turns=self.turns | other.turns,
            held=self.held or other.held,
            capacity=self.capacity or other.capacity,
            sessions=self.sessions | other.sessions,
            rooms=self.rooms or other.rooms,
            overdue=self.overdue or other.overdue,
        )

    def excuses_turns_of(self, node: str) -> bool:
        """Whether turns of this node may go on elsewhere."""
        return node in self.turns or self.turns >= ANY_NODE


@dataclass
class Lost:
    """What a lossy link has lost: packets, which the kernel dropped, or stalled pieces of a proxy.

    Attributes:
        what: "packets" or "pieces".
        of: how many there were in all.
    """

    what: str
    lost: int
    of: int

    def __str__(self) -> str:
        done = "lost" if self.what == "packets" else "stalled"
        return f"{done} {self.lost} of {self.of} {self.what}"


@dataclass
class Struck:
    """A fault as it happened; `at` names what it hit."""

    fault: str
    at: str
    injected: float
    healed: float
    lost: Lost | None = None

    def hit(self, process: str) -> bool:
        """Whether it hit this process itself, not only a link of it."""
        return process in self.at.split(", ")

    def __str__(self) -> str:
        if self.lost is None:
            return self.at
        nothing = "" if self.lost.lost else ", so it struck nothing"
        return f"{self.at} ({self.lost}{nothing})"


@dataclass(frozen=True)
class Silence:
    """A time in which a process did not answer a health check.

    Attributes:
        since, until: from the first check without an answer to the next answer.
        cpu_s: CPU time that the process used meanwhile.
        control_s: the longest time that an idle process did not answer meanwhile: what the machine,
            and whoever asks, are to blame for.
    """

    process: str
    since: float
    until: float
    cpu_s: float
    control_s: float


HOSTILE_PEERS = ("client", "node", "web", "room")
"""The kinds of hostile peers, each a program of traffic/."""


@dataclass
class HostileHistory:
    """What hostile peers did, and what else was seen while they did it.

    Attributes:
        acts: how often each act was done, by name.
        cycles: how often each hostile peer has done all of its acts.
        broke: tracebacks of acts that failed by a mistake of their own.
        silences: those of services, but for very short ones.
        memory_mb: of each process, before the hostile peers began, and the most since then.
        out: a time, an honest node, and why it got no jobs: it was ejected, or offline.
        ended: a time, and a process that had ended.
    """

    acts: dict[str, int] = field(default_factory=dict)
    cycles: dict[str, int] = field(default_factory=dict)
    broke: list[str] = field(default_factory=list)
    silences: list[Silence] = field(default_factory=list)
    memory_mb: dict[str, tuple[float, float]] = field(default_factory=dict)
    out: list[tuple[float, str, str]] = field(default_factory=list)
    ended: list[tuple[float, str]] = field(default_factory=list)


@dataclass
class History:
    """One round.

    Attributes:
        name: of its faults, as the report groups them.
        rooms: beside the conversations of the clients.
        stall_s: how long a text may take after its last word; 0: any time.
        leases_left: what the pool service still counted as taken at the end.
        logged: lines of the services' logs that only a bug writes.
        hostile: None: there were no hostile peers.
    """

    name: str
    seed: int
    clients: list[ClientHistory] = field(default_factory=list)
    rooms: list[RoomHistory] = field(default_factory=list)
    nodes: list[NodeHistory] = field(default_factory=list)
    struck: list[Struck] = field(default_factory=list)
    excuses: Excuses = field(default_factory=Excuses)
    stall_s: float = 0.0
    leases_left: list[str] = field(default_factory=list)
    logged: list[str] = field(default_factory=list)
    hostile: HostileHistory | None = None

    @property
    def healed(self) -> float:
        """When the last fault was over."""
        return max((each.healed for each in self.struck), default=0.0)

    def write(self, path: Path) -> None:
        """For somebody who looks for the cause."""
        path.write_text(json.dumps(asdict(self), default=sorted, indent=1))
