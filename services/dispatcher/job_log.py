"""The log of job changes, as lua/lib/job_log.lua writes it: entries, cursors, and filters. Pure.

A job has an entry for each of its changes. The list of jobs has it once, at its latest change.
Which one that is follows from the job's record, which has the times of all placements and ends.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lingua_scheduler.services.runtime.contract.capabilities import normal
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2

# States of a job in Lua, and in the list of changes: a node's acknowledgement is not in the log.
_STATES = {
    "reserved": common_pb2.JOB_STATE_DISPATCHED,
    "acked": common_pb2.JOB_STATE_DISPATCHED,
    "retrying": common_pb2.JOB_STATE_RETRYING,
    "done": common_pb2.JOB_STATE_DONE,
    "failed": common_pb2.JOB_STATE_FAILED,
    "cancelled": common_pb2.JOB_STATE_CANCELLED,
    "unplaced": common_pb2.JOB_STATE_FAILED,
}
OVER = (
    common_pb2.JOB_STATE_DONE,
    common_pb2.JOB_STATE_FAILED,
    common_pb2.JOB_STATE_CANCELLED,
)
_PARTS = 16
# Bits of a cursor for the number of an entry within its millisecond. Redis adds a few hundred
# entries per millisecond at most, but keeps to the same one while its clock is behind.
_SEQ_BITS = 22
_MAX_SEQ = (1 << _SEQ_BITS) - 1


class Position(NamedTuple):
    """The id of an entry: milliseconds by the clock of Redis, and a number within them."""

    ms: int
    seq: int

    def __str__(self) -> str:
        return f"{self.ms}-{self.seq}"

    @property
    def token(self) -> str:
        """The position as a cursor: a decimal number of 64 bits."""
        return str(self.ms << _SEQ_BITS | min(self.seq, _MAX_SEQ))


def position_of(token: str) -> Position | None:
    """The position of a cursor; None for one that has no position yet ("" or "0")."""
    number = int(token or "0")
    seq = number & _MAX_SEQ
    # Entries that a cursor cannot tell apart count as passed, so that a reader gets on.
    return Position(number >> _SEQ_BITS, seq if seq < _MAX_SEQ else 2**64 - 1) if number else None


@dataclass(frozen=True, slots=True)
class Entry:
    """One change of one job. The fields are those of JobChange."""

    position: Position
    job_id: str
    state: common_pb2.JobState.ValueType
    changed_ms: int
    attempt: int
    node_id: str
    outcome: str
    # The job's latest attempt; 0: none.
    latest: int
    tenant: str
    session_id: str
    utterance_index: int
    src: str
    tgt: str
    reason: int
    created_ms: int
    error: int
    kind: int

    @property
    def is_end(self) -> bool:
        """Whether the job was over after the change."""
        return self.state in OVER

    def change(self) -> dispatcher_pb2.JobChange:
        """The entry as consoles get it."""
        return dispatcher_pb2.JobChange(
            job_id=self.job_id,
            state=self.state,
            changed_ms=self.changed_ms,
            created_ms=self.created_ms,
            attempt=self.attempt,
            node_id=self.node_id,
            outcome=self.outcome,
            tenant=self.tenant,
            session_id=self.session_id,
            utterance_index=self.utterance_index,
            pair=common_pb2.LanguagePair(src=self.src, tgt=self.tgt),
            reason=common_pb2.FinalizeReason.ValueType(self.reason),
            error=common_pb2.ErrorReason.ValueType(self.error),
            result_kind=dispatcher_pb2.JobResult.Kind.ValueType(self.kind),
        )


def position_in_log(written: bytes) -> Position:
    """The position of an entry, from its id in Redis."""
    ms, _, seq = written.partition(b"-")
    return Position(int(ms), int(seq))


def entry_of(raw: Sequence[object]) -> Entry | None:
    """An entry as XRANGE returns it: its id, and its fields. None if it is not one of ours."""
    written, fields = raw
    assert isinstance(written, bytes)
    assert isinstance(fields, list)
    parts = fields[1].decode().split("|") if len(fields) == 2 else []
    # A later version may add parts.
    if len(parts) < _PARTS or parts[1] not in _STATES:
        return None
    job, state, changed, attempt, node, outcome, latest, tenant, session, *rest = parts
    utterance, src, tgt, reason, created, error, kind, *_ = rest
    return Entry(
        position=position_in_log(written),
        job_id=job,
        state=_STATES[state],
        changed_ms=int(changed),
        attempt=int(attempt),
        node_id=node,
        outcome=outcome,
        latest=int(latest),
        tenant=tenant,
        session_id=session,
        utterance_index=int(utterance or 0),
        src=src,
        tgt=tgt,
        reason=int(reason or 0),
        created_ms=int(created or 0),
        error=int(error or 0),
        kind=int(kind or 0),
    )


def is_latest(entry: Entry, job: dispatcher_pb2.Job) -> bool:
    """Whether a job has not changed since this entry. job: from its record."""
    if entry.is_end != (job.state in OVER):
        return False
    if entry.is_end:
        return entry.changed_ms >= job.updated_ms
    # The update of an acknowledgement is not in the log.
    times = [max(attempt.reserved_ms, attempt.ended_ms) for attempt in job.attempts]
    return entry.changed_ms >= max(times, default=0)


class Filter:
    """Which jobs a request asks for.

    Args:
        request: the request.
        quiet_before_ms: a job that has not ended and has not changed since this time may have been
            abandoned by its home; then it counts as failed.
    """

    def __init__(self, request: dispatcher_pb2.ListJobsRequest, *, quiet_before_ms: float) -> None:
        self._request = request
        self._quiet_before_ms = quiet_before_ms
        pair = request.pair
        self._pair = (normal(pair.src), normal(pair.tgt)) if request.HasField("pair") else None

    def may_fit(self, entry: Entry) -> bool:
        """Whether the job may be asked for, if this is its latest change."""
        request = self._request
        return (
            request.session_id in ("", entry.session_id)
            and self._pair in (None, (entry.src, entry.tgt))
            and request.changed_from_ms <= entry.changed_ms
            and (not request.changed_to_ms or entry.changed_ms <= request.changed_to_ms)
            and self._may_be_on_node(entry)
            and self._may_have_state(entry)
            and self._may_have_error(entry)
        )

    def _may_be_on_node(self, entry: Entry) -> bool:
        attempts = max(entry.latest, entry.attempt)
        if not self._request.node_id or attempts > 1:
            return True
        return entry.node_id == self._request.node_id

    def _may_have_state(self, entry: Entry) -> bool:
        wanted = self._request.state
        if wanted == common_pb2.JOB_STATE_UNSPECIFIED:
            return True
        if entry.is_end:
            return wanted == entry.state
        is_abandoned = wanted == common_pb2.JOB_STATE_FAILED and self._is_quiet(entry)
        return wanted not in OVER or is_abandoned

    def _may_have_error(self, entry: Entry) -> bool:
        wanted = self._request.error
        if not wanted:
            return True
        if not entry.is_end:
            return wanted == common_pb2.ERROR_REASON_JOB_FAILED and self._is_quiet(entry)
        # The reason may be in another entry.
        return entry.state != common_pb2.JOB_STATE_DONE and entry.error in (0, wanted)

    def _is_quiet(self, entry: Entry) -> bool:
        return entry.changed_ms < self._quiet_before_ms

    def fits(self, job: dispatcher_pb2.Job) -> bool:
        """Whether the job is asked for. Its latest change must be one that may fit."""
        request = self._request
        return (
            request.state in (common_pb2.JOB_STATE_UNSPECIFIED, job.state)
            and request.error in (common_pb2.ERROR_REASON_UNSPECIFIED, job.error.reason)
            and (
                not request.node_id
                or any(attempt.node_id == request.node_id for attempt in job.attempts)
            )
        )


def end_of(entries: Sequence[Entry], last: Entry) -> Position:
    """The position of the last entry in the millisecond of an entry. The newest entry is first."""
    return min(each.position for each in entries if each.position.ms == last.position.ms)


class PageOfJobs:
    """Picks the entries of one page, given the newest first: the latest change of each job.

    Args:
        wanted: which jobs.
        size: how many jobs, approximately.
        max_records: how many records may be read for the page, approximately.
    """

    def __init__(self, wanted: Filter, *, size: int, max_records: int) -> None:
        self._wanted = wanted
        self._size = size
        self._left = max_records
        self._met: set[str] = set()
        self.jobs: list[dispatcher_pb2.Job] = []

    @property
    def is_full(self) -> bool:
        """Whether the page ends here."""
        return len(self.jobs) >= self._size or self._left <= 0

    def candidates(self, entries: Sequence[Entry]) -> list[Entry]:
        """The entries whose jobs may be on this page, in the same order."""
        found = []
        for entry in entries:
            if entry.job_id not in self._met:
                self._met.add(entry.job_id)
                if self._wanted.may_fit(entry):
                    found.append(entry)
        return found

    def next_records(self, candidates: Sequence[Entry], at: int, most: int) -> list[Entry]:
        """The candidates from an index on whose records should be read next.

        They end with a millisecond, as pages do: the times of two changes of a job within one do
        not tell which is the latest.
        """
        end = min(len(candidates), at + max(1, min(most, self._size - len(self.jobs))))
        last_ms = candidates[end - 1].position.ms
        while end < len(candidates) and candidates[end].position.ms == last_ms:
            end += 1
        self._left -= end - at
        return list(candidates[at:end])

    def add(self, jobs: Sequence[dispatcher_pb2.Job]) -> None:
        """Adds those of the jobs that are asked for."""
        self.jobs += [job for job in jobs if self._wanted.fits(job)]
