"""An index of recent jobs, from their changes."""

import sys
from collections import OrderedDict
from collections.abc import Iterator
from typing import Final, NamedTuple

from lingua_scheduler.services.runtime.errors import reason_name
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2

MAX_JOBS = 20_000
# Attempts of one job. The dispatcher makes at most 21 that count.
MAX_ATTEMPTS = 64

STATES: Final = ("active", "retrying", "done", "failed", "cancelled")
_STATES: Final = {
    common_pb2.JOB_STATE_RETRYING: "retrying",
    common_pb2.JOB_STATE_DONE: "done",
    common_pb2.JOB_STATE_FAILED: "failed",
    common_pb2.JOB_STATE_CANCELLED: "cancelled",
}
OVER: Final = frozenset(("done", "failed", "cancelled"))
# Outcomes of attempts that are the node's failure.
FAILURES: Final = frozenset(("failed", "timed_out"))


def state_of(state: common_pb2.JobState.ValueType) -> str:
    """A state of the contract, as the console names it."""
    return _STATES.get(state, "active")


class IndexedAttempt(NamedTuple):
    """One attempt: `ended_ms` is 0 and `outcome` empty until it has ended."""

    number: int
    node_id: str
    placed_ms: int = 0
    ended_ms: int = 0
    outcome: str = ""


class IndexedJob:
    """What the changes of a job tell.

    Merging changes is commutative and idempotent: it does not matter in which order they come, or
    how often.
    """

    __slots__ = (
        "_last",
        "_reason_at",
        "attempts",
        "changed_ms",
        "created_ms",
        "cut",
        "error",
        "job_id",
        "kind",
        "session_id",
        "src",
        "state",
        "tenant",
        "tgt",
        "utterance_index",
    )

    def __init__(self, change: dispatcher_pb2.JobChange) -> None:
        self.job_id = change.job_id
        # Many jobs share these texts.
        self.tenant = sys.intern(change.tenant)
        self.session_id = sys.intern(change.session_id)
        self.utterance_index = change.utterance_index
        self.src = sys.intern(change.pair.src)
        self.tgt = sys.intern(change.pair.tgt)
        self.cut = change.reason
        self.state = ""
        self.changed_ms = 0
        self.created_ms = change.created_ms
        self.error = ""
        self.kind = dispatcher_pb2.JobResult.KIND_UNSPECIFIED
        self.attempts: tuple[IndexedAttempt, ...] = ()
        self._last = (-1, False, 0, 0)
        self._reason_at: tuple[int, str] = (-1, "")

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self.state in OVER

    @property
    def took_ms(self) -> int:
        """From its first placement to its end; -1 if it has not ended."""
        if not self.is_over:
            return -1
        # Attempts beside the one that succeeded may end later.
        done = self._done()
        ended_ms = done.ended_ms if done is not None else self.changed_ms
        return max(0, ended_ms - self.created_ms)

    @property
    def node_id(self) -> str:
        """The node that has it, or had it last; of a job that is done, the one that did it."""
        last = self._done() or (self.attempts[-1] if self.attempts else None)
        return last.node_id if last is not None else ""

    @property
    def nodes(self) -> list[str]:
        """All nodes that have had it, in order, each once."""
        return list(dict.fromkeys(each.node_id for each in self.attempts))

    def merge(self, change: dispatcher_pb2.JobChange) -> None:
        """Takes in a change."""
        if change.created_ms:
            known = self.created_ms or change.created_ms
            self.created_ms = min(known, change.created_ms)
        self._merge_attempt(change)
        self._merge_error(change)
        state = state_of(change.state)
        # Of the changes in one millisecond the later attempt is the later one, and an end is last.
        at = (change.changed_ms, state in OVER, change.attempt, STATES.index(state))
        if at > self._last:
            self._last = at
            self.state, self.changed_ms = state, change.changed_ms
        self.kind = max(self.kind, change.result_kind)
        self.error = self._reason_at[1] if self.state == "failed" else ""

    def _done(self) -> IndexedAttempt | None:
        return next((each for each in self.attempts if each.outcome == "done"), None)

    def _merge_attempt(self, change: dispatcher_pb2.JobChange) -> None:
        if not (change.attempt and change.node_id):
            return
        has_ended = bool(change.outcome)
        made = IndexedAttempt(
            change.attempt,
            sys.intern(change.node_id),
            0 if has_ended else change.changed_ms,
            change.changed_ms if has_ended else 0,
            sys.intern(change.outcome),
        )
        attempts = {each.number: each for each in self.attempts}
        known = attempts.get(change.attempt)
        attempts[change.attempt] = _merged(known, made) if known is not None else made
        # The latest ones count: an attempt is added at the end.
        self.attempts = tuple(attempts[number] for number in sorted(attempts)[-MAX_ATTEMPTS:])

    def _merge_error(self, change: dispatcher_pb2.JobChange) -> None:
        if change.error:
            told = (change.changed_ms, sys.intern(reason_name(change.error)))
            self._reason_at = max(self._reason_at, told)


def _merged(one: IndexedAttempt, other: IndexedAttempt) -> IndexedAttempt:
    """What two changes tell of an attempt; if they differ, the first end counts."""
    placed = min(filter(None, (one.placed_ms, other.placed_ms)), default=0)
    ends = [(each.ended_ms, each.outcome) for each in (one, other) if each.ended_ms]
    ended_ms, outcome = min(ends, default=(0, ""))
    return IndexedAttempt(one.number, max(one.node_id, other.node_id), placed, ended_ms, outcome)


class NodeFailure(NamedTuple):
    """An attempt that failed on a node."""

    at_ms: int
    job_id: str
    attempt: int
    outcome: str
    error: str


class JobIndex:
    """The jobs that have changed last, by id, by session and by node.

    Args:
        max_jobs: how many are kept; the one whose last change is the oldest leaves first.
    """

    def __init__(self, max_jobs: int = MAX_JOBS) -> None:
        self._max_jobs = max_jobs
        # The oldest change first.
        self._jobs: OrderedDict[str, IndexedJob] = OrderedDict()
        self._by_session: dict[str, dict[str, None]] = {}
        self._by_node: dict[str, dict[str, None]] = {}
        self.gap_ms = 0
        """Time at which changes were found to be missing; 0: never."""

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[IndexedJob]:
        """All jobs, the oldest change first."""
        return iter(self._jobs.values())

    def get(self, job_id: str) -> IndexedJob | None:
        """One job."""
        return self._jobs.get(job_id)

    def apply(self, change: dispatcher_pb2.JobChange) -> None:
        """Takes in a change."""
        job = self._jobs.get(change.job_id)
        if job is None:
            job = self._jobs[change.job_id] = IndexedJob(change)
            self._by_session.setdefault(job.session_id, {})[job.job_id] = None
        before, nodes = job.changed_ms, set(job.nodes)
        job.merge(change)
        # A change that was read again does not make the job recent.
        if job.changed_ms > before:
            self._jobs.move_to_end(job.job_id)
        for node_id in nodes.symmetric_difference(job.nodes):
            if node_id in nodes:
                _discard(self._by_node, node_id, job.job_id)
            else:
                self._by_node.setdefault(node_id, {})[job.job_id] = None
        while len(self._jobs) > self._max_jobs:
            self._forget(self._jobs.popitem(last=False)[1])

    def note_gap(self, now_ms: int) -> None:
        """Changes were lost: jobs may be missing, or look older than they are."""
        self.gap_ms = now_ms

    def quiet(self, before_ms: int) -> Iterator[IndexedJob]:
        """The jobs that have not ended and have not changed since this time."""
        for job in list(self._jobs.values()):
            if job.changed_ms >= before_ms:
                # Changes are nearly in the order of their times.
                return
            if not job.is_over:
                yield job

    def of_session(self, session_id: str) -> list[IndexedJob]:
        """The jobs of a session."""
        return [self._jobs[each] for each in self._by_session.get(session_id, ())]

    def of_node(self, node_id: str) -> list[IndexedJob]:
        """The jobs that had an attempt on a node."""
        return [self._jobs[each] for each in self._by_node.get(node_id, ())]

    def sessions(self) -> Iterator[str]:
        """The sessions that have jobs here."""
        return (each for each in self._by_session if each)

    def failures_of_node(self, node_id: str, count: int) -> list[NodeFailure]:
        """The last attempts that failed on a node, the newest first."""
        failures = [
            NodeFailure(each.ended_ms, job.job_id, each.number, each.outcome, job.error)
            for job in self.of_node(node_id)
            for each in job.attempts
            if each.node_id == node_id and each.outcome in FAILURES
        ]
        return sorted(failures, reverse=True)[:count]

    def _forget(self, job: IndexedJob) -> None:
        _discard(self._by_session, job.session_id, job.job_id)
        for node_id in {each.node_id for each in job.attempts}:
            _discard(self._by_node, node_id, job.job_id)


def _discard(index: dict[str, dict[str, None]], key: str, job_id: str) -> None:
    found = index.get(key)
    if found is not None:
        found.pop(job_id, None)
        if not found:
            del index[key]
