"""The log of job changes: its entries, its cursors, and the walk that lists jobs from it."""

import random
from typing import Any

import pytest

from lingua_scheduler.services.dispatcher.job_log import (
    OVER,
    Entry,
    Filter,
    PageOfJobs,
    Position,
    end_of,
    entry_of,
    is_latest,
    position_in_log,
    position_of,
)
from lingua_scheduler.services.runtime.contract.text_formats import TEXT_FORMATS
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, limits_pb2

T0 = 1_800_000_000_000
DISPATCHED = common_pb2.JOB_STATE_DISPATCHED
ACKED = common_pb2.JOB_STATE_ACKED
RETRYING = common_pb2.JOB_STATE_RETRYING
DONE = common_pb2.JOB_STATE_DONE
FAILED = common_pb2.JOB_STATE_FAILED
CANCELLED = common_pb2.JOB_STATE_CANCELLED
TIMEOUT = common_pb2.ERROR_REASON_JOB_TIMEOUT
JOB_FAILED = common_pb2.ERROR_REASON_JOB_FAILED
WORDS = {DISPATCHED: "reserved", RETRYING: "retrying", DONE: "done", FAILED: "failed"}


def entry(at: int = 0, job: str = "j1", state: int = DONE, **fields: Any) -> Entry:
    """A change so many ms after T0."""
    values: dict[str, Any] = {
        "position": Position(T0 + at, 0),
        "job_id": job,
        "state": state,
        "changed_ms": T0 + at,
        "attempt": 1,
        "node_id": "n1",
        "outcome": "",
        "latest": 1,
        "tenant": "t1",
        "session_id": "s1",
        "utterance_index": 4,
        "src": "zh",
        "tgt": "en",
        "reason": 0,
        "created_ms": T0,
        "error": 0,
        "kind": 0,
    }
    return Entry(**{**values, **fields})


def may_fit(written: Entry, **wanted: Any) -> bool:
    request = dispatcher_pb2.ListJobsRequest(**wanted)
    return Filter(request, quiet_before_ms=T0).may_fit(written)


@pytest.mark.parametrize("position", [(1, 0), (T0, 0), (T0, 12), (T0, 4_000_000)])
def test_a_cursor_is_a_page_token_that_leads_back_to_its_position(
    position: tuple[int, int],
) -> None:
    token = Position(*position).token
    assert TEXT_FORMATS[limits_pb2.TEXT_FORMAT_PAGE_TOKEN].fits(token)
    assert position_of(token) == Position(*position)


def test_a_cursor_without_a_position_is_the_beginning() -> None:
    assert position_of("") is None
    assert position_of("0") is None


def test_a_reader_gets_past_more_entries_in_a_millisecond_than_a_cursor_can_count() -> None:
    position = position_of(Position(T0, 5_000_000).token)
    assert position is not None
    assert position > Position(T0, 5_000_000)
    assert position < Position(T0 + 1, 0)


@pytest.mark.parametrize("token", ["1", str(2**64 - 1), "007"])
def test_any_number_is_a_position(token: str) -> None:
    position = position_of(token)
    assert position is not None
    assert position_in_log(str(position).encode()) == position


def test_an_entry_is_read_as_the_scripts_write_it() -> None:
    parts = "j1|done|1800000000500|2|n1|done|3|t1|s1|4|zh|en|1|1800000000000||2"
    read = entry_of([b"1800000000501-7", [b"c", parts.encode()]])
    assert read is not None
    assert read.position == Position(T0 + 501, 7)
    assert read.latest == 3
    assert read.change() == dispatcher_pb2.JobChange(
        job_id="j1",
        state=DONE,
        changed_ms=T0 + 500,
        created_ms=T0,
        attempt=2,
        node_id="n1",
        outcome="done",
        tenant="t1",
        session_id="s1",
        utterance_index=4,
        pair=common_pb2.LanguagePair(src="zh", tgt="en"),
        reason=common_pb2.FINALIZE_REASON_IS_FINAL,
        result_kind=dispatcher_pb2.JobResult.KIND_HELD,
    )


def test_an_entry_may_know_no_more_than_the_attempt() -> None:
    read = entry_of(
        [b"1800000000501-0", [b"c", b"j1|failed|1800000000500|2|n1|failed|2" + b"|" * 9]]
    )
    assert read is not None
    assert read.change() == dispatcher_pb2.JobChange(
        job_id="j1",
        state=FAILED,
        changed_ms=T0 + 500,
        attempt=2,
        node_id="n1",
        outcome="failed",
        pair=common_pb2.LanguagePair(),
    )


@pytest.mark.parametrize(
    ("word", "state"),
    [("acked", DISPATCHED), ("unplaced", FAILED), ("retrying", RETRYING), ("cancelled", CANCELLED)],
)
def test_states_are_those_of_the_contract(word: str, state: int) -> None:
    read = entry_of([b"1-0", [b"c", f"j1|{word}|1|0|||0{'|' * 9}".encode()]])
    assert read is not None
    assert read.state == state


def test_entries_of_later_versions_are_read_or_skipped() -> None:
    parts = "j1|done|1|1|n1|done|1|t|s|0|zh|en|1|1||1"
    assert entry_of([b"1-0", [b"c", f"{parts}|more".encode()]])
    assert entry_of([b"1-0", [b"c", parts.replace("done", "paused").encode()]]) is None
    assert entry_of([b"1-0", [b"c", b"j1|done"]]) is None
    assert entry_of([b"1-0", [b"a", b"b", b"c", b"d"]]) is None


def test_a_filter_names_session_direction_and_time() -> None:
    assert may_fit(entry())
    assert may_fit(entry(), session_id="s1")
    assert not may_fit(entry(), session_id="s2")
    assert may_fit(entry(), pair=common_pb2.LanguagePair(src="ZH", tgt="en"))
    assert not may_fit(entry(), pair=common_pb2.LanguagePair(src="en", tgt="zh"))
    assert may_fit(entry(5), changed_from_ms=T0 + 5, changed_to_ms=T0 + 5)
    assert not may_fit(entry(5), changed_from_ms=T0 + 6)
    assert not may_fit(entry(5), changed_to_ms=T0 + 4)


def test_a_job_with_one_attempt_is_on_the_node_of_its_entry_and_others_may_be_on_any() -> None:
    assert may_fit(entry(node_id="n1"), node_id="n1")
    assert not may_fit(entry(node_id="n2"), node_id="n1")
    assert not may_fit(entry(node_id="", attempt=0, latest=0), node_id="n1")
    assert may_fit(entry(node_id="n2", latest=2), node_id="n1")


def test_a_job_that_has_not_ended_may_be_in_any_state_but_those_of_an_end() -> None:
    for state in (DISPATCHED, ACKED, RETRYING):
        assert may_fit(entry(state=DISPATCHED), state=state)
        assert not may_fit(entry(state=DONE), state=state)
    assert not may_fit(entry(1, state=DISPATCHED), state=DONE)
    assert not may_fit(entry(1, state=DISPATCHED), state=FAILED)
    assert may_fit(entry(-1, state=DISPATCHED), state=FAILED)
    assert may_fit(entry(state=FAILED), state=FAILED)
    assert not may_fit(entry(state=FAILED), state=CANCELLED)


def test_an_end_without_a_reason_may_have_any() -> None:
    assert may_fit(entry(state=FAILED, error=TIMEOUT), error=TIMEOUT)
    assert may_fit(entry(state=FAILED), error=TIMEOUT)
    assert not may_fit(entry(state=FAILED, error=JOB_FAILED), error=TIMEOUT)
    assert not may_fit(entry(state=DONE), error=TIMEOUT)
    assert not may_fit(entry(-1, state=DISPATCHED), error=TIMEOUT)
    assert may_fit(entry(-1, state=DISPATCHED), error=JOB_FAILED)


class History:
    """Jobs with random histories: their entries, oldest first, and their records."""

    def __init__(self, seed: int, jobs: int, changes: int) -> None:
        self._chance = random.Random(seed)
        self.entries: list[Entry] = []
        self.records: dict[str, dispatcher_pb2.Job] = {}
        self._at = 0
        for _ in range(changes):
            self.step(f"job-{self._chance.randrange(jobs)}")

    def step(self, name: str) -> None:
        """Something happens to a job; often within the millisecond of the change before."""
        self._at += self._chance.choice((0, 0, 1, 5))
        job = self.records.setdefault(name, dispatcher_pb2.Job(job_id=name))
        now = job.updated_ms = T0 + self._at
        running = [each for each in job.attempts if not each.outcome]
        if job.state in OVER:
            # The end of an attempt is reported after that of the job.
            self._log(job, len(job.attempts))
        elif not running:
            number, node = len(job.attempts) + 1, self._chance.choice(("n1", "n2", "n3"))
            job.attempts.add(attempt=number, node_id=node, reserved_ms=now)
            job.state = DISPATCHED
            self._log(job, number)
        elif self._chance.random() < 0.3:
            running[0].acked_ms, job.state = now, ACKED
        else:
            running[0].ended_ms = now
            running[0].outcome = self._chance.choice(("done", "failed", "failed"))
            if running[0].outcome == "done":
                job.state = DONE
            else:
                job.state = self._chance.choice((RETRYING, FAILED))
            self._log(job, running[0].attempt)
            if job.state == FAILED:
                job.error.reason = TIMEOUT
                self._log(job, running[0].attempt)

    def _log(self, job: dispatcher_pb2.Job, number: int) -> None:
        seq = 0
        if self.entries and self.entries[-1].position.ms == T0 + self._at:
            seq = self.entries[-1].position.seq + 1
        logged = DISPATCHED if job.state == ACKED else job.state
        written = entry(
            self._at,
            job.job_id,
            logged,
            position=Position(T0 + self._at, seq),
            attempt=number,
            latest=len(job.attempts),
            node_id=job.attempts[number - 1].node_id,
            error=job.error.reason,
        )
        self.entries.append(written)

    def latest(self) -> list[str]:
        """All jobs, the one that changed last first."""
        return list(dict.fromkeys(each.job_id for each in reversed(self.entries)))


def walk(history: History, size: int, **wanted: Any) -> list[list[str]]:
    """The pages of a list of jobs, as the dispatcher reads them."""
    request = dispatcher_pb2.ListJobsRequest(**wanted)
    pages, left = [], history.entries[::-1]
    while True:
        page = PageOfJobs(Filter(request, quiet_before_ms=0), size=size, max_records=40)
        candidates, at = page.candidates(left), 0
        while at < len(candidates) and not page.is_full:
            some = page.next_records(candidates, at, 8)
            at += len(some)
            page.add(
                [
                    history.records[each.job_id]
                    for each in some
                    if is_latest(each, history.records[each.job_id])
                ]
            )
        pages.append([job.job_id for job in page.jobs])
        if not page.is_full:
            return pages
        end = end_of(left, some[-1])
        left = [each for each in left if each.position < end]


@pytest.mark.parametrize("seed", range(40))
def test_over_all_pages_each_job_is_listed_once_at_its_latest_change(seed: int) -> None:
    history = History(seed, jobs=30, changes=200)
    for size in (1, 3, 100):
        assert [job for page in walk(history, size) for job in page] == history.latest()


@pytest.mark.parametrize("seed", range(20))
def test_filters_leave_the_order_as_it_is_and_miss_nothing(seed: int) -> None:
    history = History(seed, jobs=30, changes=200)
    for wanted in ({"state": FAILED}, {"state": ACKED}, {"node_id": "n2"}, {"error": TIMEOUT}):
        request = dispatcher_pb2.ListJobsRequest(**wanted)  # type: ignore[arg-type]
        fits = Filter(request, quiet_before_ms=0).fits
        expected = [job for job in history.latest() if fits(history.records[job])]
        assert [job for page in walk(history, 4, **wanted) for job in page] == expected


def test_a_page_is_about_as_long_as_asked_for() -> None:
    pages = walk(History(1, jobs=300, changes=600), 10)
    assert all(10 <= len(page) <= 25 for page in pages[:-1])


def test_a_page_ends_after_a_number_of_records_even_if_none_fits() -> None:
    pages = walk(History(1, jobs=300, changes=600), 10, state=ACKED)
    assert [] in pages
