"""What the machine knows about one job: its phase, its attempts, its timers, and its rules.

The phases, and the contract's JobState for each:

    NEW        nothing has happened yet                                    NEW
    SELECTING  the pool has been asked for a node                          SELECTING, RETRYING
    WAITING    all nodes are full, or the quota is; the job is queued      SELECTING, RETRYING
    PLACED     one attempt is at a node, unacknowledged (two if hedged)    DISPATCHED
    RUNNING    one attempt is acknowledged                                 ACKED
    LOST       the node's connection is gone; it may come back             ACKED
    FETCHING   the job was done earlier; its result is being looked for    DONE
    OVER       delivered, failed or cancelled                              DONE, FAILED, CANCELLED

Every event in every phase ("-": nothing happens):

                  NEW      SELECTING WAITING  PLACED   RUNNING  LOST     FETCHING OVER
    start         select   -         -        -        -        -        -        -
    given         late     place     late     place    late     late     late     late
    had reserved  -        place     -        -        -        -        -        stop
    had running   -        adopt     -        -        -        -        -        stop
    had done      -        fetch     -        -        -        -        -        -
    had failed    -        fail      -        -        -        -        -        -
    all full      -        wait      -        -        -        -        -        -
    bound full    -        wait      -        -        -        -        -        -
    over quota    -        wait      -        -        -        -        -        -
    refused       -        fail      -        -        -        -        -        -
    room          -        -         select   -        -        -        -        -
    no place      -        -         fail     -        -        -        -        -
    send failed   -        -         -        next     lost     -        lost     -
    node lost     -        -         -        next     lost     -        lost     -
    node back     -        -         -        -        -        commit   -        -
    acked         -        late      late     run      -        back     hold     late
    committed     -        -         -        -        -        -        -        -
    no room       -        -         -        -        next     next     -        -
    superseded    -        -         -        -        next     next     -        -
    rejected      -        -         -        next     next     next     fetch    -
    partial       -        -         -        run+pass pass     back+pass hold+pass -
    result        -        late      late     done     done     done     done     late
    failed        -        late      late     next     next     next     fail     late
    hopeless      -        late      late     next     next     next     fail     late
    kept          -        -         -        -        -        -        done     -
    not kept      -        -         -        -        -        -        send     -
    timer ack     -        -         -        next     -        -        fail     -
    timer hedge   -        -         -        hedge    -        -        -        -
    timer job     -        -         -        -        next     next     fail     -
    timer grace   -        -         -        -        -        next     -        -
    timer wait    -        -         fail     -        -        -        -        -
    timer bound   -        -         select   -        -        -        -        -
    timer others  -        -         select   -        -        -        -        -
    timer ask     -        ask       -        -        -        -        -        -
    deadline      -        fail      fail     fail     fail     fail     fail     -
    cancel        cancel   cancel    cancel   cancel   cancel   cancel   cancel   -

"given": the pool has reserved a slot. "had ...": the pool returns an attempt that the job already
has, because another instance was its home before. "hopeless": failed, and not worth a retry.

"late": nobody wants this answer any more. The node is told to stop, the slot is given back, or the
report is confirmed and dropped; nothing else changes. Whatever comes from an attempt that is not
alive is late in every phase. An attempt that was given up stays so, even if its acknowledgement
arrives afterwards: its node has been told to stop. (If the acknowledgement is in time but the
reservation has expired, the pool decides: commit takes the slot again if the node has one, and
answers "no room" otherwise.)

A result or failure of an unknown attempt is ignored while the pool is being asked or the job waits:
it may belong to the attempt that the pool is about to return (a job that queues behind others waits
before it asks), and the node reports it again when that attempt is sent.

"next": the attempt ends. If another one is alive, that one goes on. Otherwise, if tries are left,
the pool is asked again, without the nodes that were tried; if none are left, the job fails with
this attempt's cause.

"all full" also means that the pool has no nodes besides those tried. They are tried again after the
job has waited for room, because a node that failed once may succeed. But one bad node must not use
up all tries while the others are away for a moment, so the last try waits for a node that has not
tried the job ("timer others"), until other_nodes_wait_ms after the job's first failure; only then
may it go to one that has. A job that a node called hopeless waits as long for a second opinion, and
then fails. A job that may go to only one node has no others to wait for.

"no place": too many jobs wait already. It ends a wait as its timer would: "fail" for a job that
waits for room. One that waits for the node of its turn leaves the turn, and one that waits for
others asks for any node, or fails if it was called hopeless.

Two kinds of unacknowledged attempts become "lost" instead of "next" if their node is unreachable or
disconnects, because the node is most likely on its way to another dispatcher. One was placed by a
turn's binding: its node has the beginning of the sentence. The other was made by an earlier home:
its node may be running it, so the job waits as long as it would for an acknowledgement.

If the connection was lost after an attempt may have been sent, its slot becomes free only after the
node was told to stop; the pool enforces that (lua/release.lua). After a miss (see MAX_MISSES) the
pool is asked again after a pause ("timer ask"), except after the first miss.

A node that is back gets the assignment again ("send") after the pool has confirmed that the slot
belongs to the job ("commit", then "committed"): a restarted node process has given its slots back,
and another job may have this one. An attempt that was not acknowledged still has its reservation,
and is sent at once. If the pool answers "no room", the node is asked only for the result: it may
have finished the job in the meantime.

In FETCHING, "send" asks only for the result: the job has no slot, so a node without the result
rejects the assignment. The result may have been kept just before the node was asked, so the machine
looks for it once more ("fetch"); then the job fails. (Either its home and its node died together,
or this instance is no longer its home, and another one has delivered it.)

A job that is LOST out of FETCHING returns there ("back" means "hold"), accepts a kept result
("kept" means "done"), has no further attempt ("next" means "fail"), and no slot to ask for
("commit" means "send").
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

from lingua_scheduler.services.dispatcher.job.effects import (
    Allocate,
    Attempt,
    Effect,
    FailureCause,
    TimerKey,
    Wake,
)
from lingua_scheduler.services.dispatcher.job.endings import Ending
from lingua_scheduler.v1 import common_pb2

# A miss is an attempt that no node accepted (unreachable, or no free slot) or that another home's
# attempt replaced. Misses say nothing about the job, so they do not count as tries. The pause after
# each miss grows, and the deadline ends them; a job without a deadline ends after this many.
MAX_MISSES = 10
_FIRST_PAUSE_MS, _LONGEST_PAUSE_MS = 50.0, 1000.0

# Nodes that must call a job hopeless before it ends: one alone may be wrong, or lie.
HOPELESS_SAYINGS = 2

# A job that waits for the node of its turn, or for one that has not tried it, reserves this share
# of its time for the attempt after that.
KEPT_FOR_ANOTHER_NODE = 1 / 3

# If the pool returns an attempt whose end has not reached it yet, it is asked again after this.
ASK_AGAIN_MS = 50.0

# Characters kept of a node's description of a failure.
MAX_DETAIL = 200


class Phase(Enum):
    """Where a job's machine stands; see the table above."""

    NEW = auto()
    SELECTING = auto()
    WAITING = auto()
    PLACED = auto()
    RUNNING = auto()
    LOST = auto()
    FETCHING = auto()
    OVER = auto()


# OVER is missing, because it has three states. SELECTING is RETRYING after the first attempt.
_STATES = {
    Phase.NEW: common_pb2.JOB_STATE_NEW,
    Phase.SELECTING: common_pb2.JOB_STATE_SELECTING,
    Phase.WAITING: common_pb2.JOB_STATE_SELECTING,
    Phase.PLACED: common_pb2.JOB_STATE_DISPATCHED,
    Phase.RUNNING: common_pb2.JOB_STATE_ACKED,
    Phase.LOST: common_pb2.JOB_STATE_ACKED,
    Phase.FETCHING: common_pb2.JOB_STATE_DONE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRules:
    """The operator's settings for jobs. Milliseconds, except for the count."""

    ack_timeout_ms: float
    # Per attempt, from its acknowledgement.
    job_timeout_ms: float
    # From the first refusal of a selection; each retry starts again.
    queue_wait_ms: float
    # From the first failure: so long the last try is kept for a node that has not tried the job.
    other_nodes_wait_ms: float
    # For the node of the turn: while it is full or silent, and while it is disconnected.
    affinity_wait_ms: float
    affinity_away_ms: float
    grace_ms: float
    # 0: never.
    hedge_after_ms: float
    # A hedge counts as a try.
    max_retry: int


@dataclass(slots=True, eq=False)
class Tries:
    """Counts what a job's attempts have come to, and which nodes they have used up."""

    count: int = 0
    misses: int = 0
    # Attempts after which the node said that no other node would do better.
    hopeless: int = 0
    excluded: list[str] = field(default_factory=list)
    # Nodes that have tried the job since it could choose from all: excluded only as long as there
    # are others.
    nodes: list[str] = field(default_factory=list)
    # All nodes that have ever tried it, and when the first of them ended.
    ever: list[str] = field(default_factory=list)
    failed_since: float = math.inf

    def add(self, now: float, node_id: str, ending: Ending) -> None:
        """Counts an attempt that has ended."""
        self.excluded.append(node_id)
        self.hopeless += ending.is_hopeless
        if ending.counts:
            self.count += 1
            self.nodes.append(node_id)
            self.ever.append(node_id)
            self.failed_since = min(self.failed_since, now)
        else:
            self.misses += 1

    def readmit_nodes(self) -> None:
        """Allows nodes that have tried the job to try it again."""
        self.excluded = [each for each in self.excluded if each not in self.nodes]
        self.nodes.clear()

    def exclude_all(self) -> None:
        """Excludes every node that has ever tried the job."""
        self.excluded = list(dict.fromkeys(self.excluded + self.ever))
        self.nodes = list(self.ever)

    def pause_ms(self, ending: Ending) -> float:
        """How long to wait before the pool is asked for the next attempt."""
        if ending.counts or self.misses <= 1:
            return 0.0
        return min(_FIRST_PAUSE_MS * (1 << min(self.misses - 2, 10)), _LONGEST_PAUSE_MS)


@dataclass(slots=True, eq=False)
class Waits:
    """Since when a job waits, and for what."""

    # For room on any node.
    room_since: float | None = None
    # For the node of its turn, and since when that node is disconnected.
    turn_since: float | None = None
    away_since: float | None = None
    # It has waited long enough: another node may take the rest of the turn.
    leaves_turn: bool = False

    def turn_ends(self, now: float, rules: JobRules, *, is_away: bool) -> float:
        """Until when the job waits for the node of its turn, not considering its deadline."""
        # The wait for room on any node starts after this one.
        self.room_since = None
        if self.turn_since is None:
            self.turn_since = now
        until = self.turn_since + rules.affinity_wait_ms
        if not is_away:
            self.away_since = None
            return until
        if self.away_since is None:
            self.away_since = now
        return min(until, self.away_since + rules.affinity_away_ms)


class JobModel:
    """The state of one job. Transitions change it; effects gather in it until the event is over.

    Args:
        rules: the operator's settings.
        deadline_ms: when the job fails in any case; None: never.
        earlier: attempts of the same job from before it began anew, all of them over. Their numbers
            are not used again, and reports about them are late.
        held: earlier utterances whose audio a node holds for the job. Only that node can do it; if
            it cannot, the job fails with HELD_AUDIO_NEEDED, and begins anew with that audio.
        is_strict: the caller allows only one node.
    """

    __slots__ = (
        "asked",
        "attempts",
        "deadline_ms",
        "effects",
        "end_state",
        "held",
        "is_strict",
        "looks",
        "lost_for",
        "phase",
        "refused_for",
        "returning",
        "rules",
        "started_ms",
        "timers",
        "tries",
        "waits",
        "wakes_ms",
    )

    def __init__(
        self,
        *,
        rules: JobRules,
        deadline_ms: float | None,
        earlier: Mapping[int, Attempt],
        held: Iterable[int],
        is_strict: bool,
    ) -> None:
        self.phase = Phase.NEW
        self.attempts = dict(earlier)
        self.timers: dict[TimerKey, float] = {}
        """When each timer that is set is due."""
        self.rules = rules
        self.started_ms = 0.0
        self.deadline_ms = deadline_ms
        self.held = frozenset(held)
        self.is_strict = is_strict
        self.tries = Tries()
        self.waits = Waits()
        self.end_state: common_pb2.JobState.ValueType = common_pb2.JOB_STATE_UNSPECIFIED
        self.effects: list[Effect] = []
        # The next wake-up that the shell knows about; later timers need none of their own.
        self.wakes_ms = math.inf
        # The question to the pool that has no answer yet.
        self.asked: Allocate | None = None
        self.refused_for: FailureCause | None = None
        # How the last lost attempt ended.
        self.lost_for: FailureCause | None = None
        # The lost attempt whose node is back, until the pool has given it its slot again.
        self.returning: int | None = None
        # How often a kept result was looked for.
        self.looks = 0

    @property
    def state(self) -> common_pb2.JobState.ValueType:
        """The phase in the contract's terms."""
        if self.phase is Phase.OVER:
            return self.end_state
        if self.attempts and self.phase in (Phase.SELECTING, Phase.WAITING):
            return common_pb2.JOB_STATE_RETRYING
        return _STATES[self.phase]

    def alive(self) -> list[Attempt]:
        """The attempts whose result is still wanted."""
        return [attempt for attempt in self.attempts.values() if attempt.is_alive]

    def live(self, number: int) -> Attempt | None:
        """The attempt with this number, if its result is still wanted."""
        attempt = self.attempts.get(number)
        return attempt if attempt is not None and attempt.is_alive else None

    def set_timer(self, key: TimerKey, at_ms: float) -> None:
        """Sets a timer, or moves it."""
        self.timers[key] = at_ms
        if at_ms < self.wakes_ms:
            self.wakes_ms = at_ms
            self.effects.append(Wake(at_ms))

    def clear_timers(self, *keys: TimerKey) -> None:
        """Clears those of these timers that are set."""
        for key in keys:
            if key in self.timers:
                del self.timers[key]

    def take_effects(self) -> list[Effect]:
        """The effects of the event that is over."""
        effects, self.effects = self.effects, []
        return effects
