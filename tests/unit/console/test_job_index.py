"""The index of recent jobs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingua_scheduler.services.console.store.job_pages import JobQuery, job_page, oldest_ms
from lingua_scheduler.services.console.store.jobs import IndexedJob, JobIndex
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2
from tests.unit.console.messages import NOW, change

PLACED = common_pb2.JOB_STATE_DISPATCHED
RETRYING = common_pb2.JOB_STATE_RETRYING
DONE = common_pb2.JOB_STATE_DONE
FAILED = common_pb2.JOB_STATE_FAILED
CANCELLED = common_pb2.JOB_STATE_CANCELLED
JOB_FAILED = common_pb2.ERROR_REASON_JOB_FAILED


def index_of(*changes: dispatcher_pb2.JobChange, max_jobs: int = 100) -> JobIndex:
    index = JobIndex(max_jobs)
    for each in changes:
        index.apply(each)
    return index


def job_of(*changes: dispatcher_pb2.JobChange) -> IndexedJob:
    job = index_of(*changes).get("j1")
    assert job is not None
    return job


RETRIED = [
    change(state=PLACED, at=0, attempt=1, node_id="n1"),
    change(state=RETRYING, at=10, attempt=1, node_id="n1", outcome="timed_out"),
    change(state=PLACED, at=10, attempt=2, node_id="n2"),
    change(state=DONE, at=90, attempt=2, node_id="n2", outcome="done", result_kind=1),
]
LOST = [
    change(state=PLACED, at=0, attempt=1, node_id="n1"),
    change(state=FAILED, at=20, attempt=1, node_id="n1", outcome="failed"),
    change(state=FAILED, at=21, error=JOB_FAILED),
]
BEGUN_ANEW = [
    change(state=FAILED, at=0, error=common_pb2.ERROR_REASON_NO_CAPABLE_NODE),
    change(state=PLACED, at=50, attempt=1, node_id="n1"),
]


def facts(job: IndexedJob) -> tuple[object, ...]:
    return (
        job.state,
        job.changed_ms,
        job.created_ms,
        job.error,
        job.kind,
        job.attempts,
        job.nodes,
        job.node_id,
        job.took_ms,
    )


def test_a_job_that_was_retried_shows_all_its_nodes() -> None:
    job = job_of(*RETRIED)
    assert job.state == "done"
    assert job.nodes == ["n1", "n2"]
    assert job.node_id == "n2"
    assert [each.outcome for each in job.attempts] == ["timed_out", "done"]
    assert job.took_ms == 90


def test_a_retry_in_the_same_millisecond_is_active() -> None:
    assert job_of(*RETRIED[:3]).state == "active"
    assert job_of(*RETRIED[:2]).state == "retrying"


def test_the_reason_of_a_failure_may_follow() -> None:
    assert job_of(*LOST[:2]).error == ""
    job = job_of(*LOST)
    assert (job.state, job.error, job.node_id) == ("failed", "JOB_FAILED", "n1")


def test_a_job_that_begins_anew_has_no_error_any_more() -> None:
    assert job_of(*BEGUN_ANEW[:1]).error == "NO_CAPABLE_NODE"
    job = job_of(*BEGUN_ANEW)
    assert (job.state, job.error) == ("active", "")


def test_an_attempt_that_ends_after_the_job_does_not_lengthen_it() -> None:
    late = change(state=DONE, at=500, attempt=1, node_id="n1", outcome="cancelled")
    job = job_of(
        change(at=0, attempt=1, node_id="n1"),
        change(at=5, attempt=2, node_id="n2"),
        change(state=DONE, at=90, attempt=2, node_id="n2", outcome="done"),
        late,
    )
    assert job.took_ms == 90
    assert job.node_id == "n2"


@pytest.mark.parametrize("changes", [RETRIED, LOST, BEGUN_ANEW])
@given(data=st.data())
def test_repeated_and_unordered_changes_do_no_harm(
    changes: list[dispatcher_pb2.JobChange], data: st.DataObject
) -> None:
    repeated = data.draw(st.lists(st.sampled_from(range(len(changes))), max_size=6))
    order = data.draw(st.permutations([*range(len(changes)), *repeated]))
    index = index_of(*(changes[at] for at in order))
    job = index.get("j1")
    assert job is not None
    assert facts(job) == facts(job_of(*changes))
    for node_id in job.nodes:
        assert index.of_node(node_id) == [job]


@given(
    st.lists(
        st.builds(
            change,
            st.sampled_from(["j1", "j2", "j3", "j4"]),
            st.sampled_from([PLACED, RETRYING, DONE, FAILED, CANCELLED]),
            st.integers(0, 20),
            attempt=st.integers(0, 3),
            node_id=st.sampled_from(["", "n1", "n2"]),
            outcome=st.sampled_from(["", "failed"]),
        ),
        max_size=40,
    )
)
def test_the_index_is_bounded_and_its_parts_agree(changes: list[dispatcher_pb2.JobChange]) -> None:
    index = index_of(*changes, max_jobs=2)
    jobs = list(index)
    assert len(jobs) <= 2
    assert sorted(job.job_id for job in index.of_session("s1")) == sorted(j.job_id for j in jobs)
    for node_id in ("n1", "n2"):
        expected = sorted(job.job_id for job in jobs if node_id in job.nodes)
        assert sorted(job.job_id for job in index.of_node(node_id)) == expected


def test_the_job_whose_last_change_is_the_oldest_leaves_first() -> None:
    index = index_of(
        change("j1", at=0), change("j2", at=1), change("j1", at=2), change("j3", at=3), max_jobs=2
    )
    assert [job.job_id for job in index] == ["j1", "j3"]
    assert oldest_ms(index) == NOW + 2


def test_a_change_that_is_read_again_does_not_make_a_job_recent() -> None:
    index = index_of(
        change("j1", at=0), change("j2", at=1), change("j1", at=0), change("j3", at=2), max_jobs=2
    )
    assert [job.job_id for job in index] == ["j2", "j3"]


def test_failures_of_a_node_are_listed_newest_first() -> None:
    index = index_of(
        *LOST,
        change("j2", RETRYING, 40, attempt=1, node_id="n1", outcome="timed_out"),
        change("j2", RETRYING, 50, attempt=2, node_id="n2", outcome="failed"),
        change("j3", CANCELLED, 60, attempt=1, node_id="n1", outcome="cancelled"),
    )
    found = [(each.job_id, each.outcome, each.error) for each in index.failures_of_node("n1", 5)]
    assert found == [("j2", "timed_out", ""), ("j1", "failed", "JOB_FAILED")]
    assert len(index.failures_of_node("n1", 1)) == 1


def test_jobs_are_filtered_counted_and_sorted() -> None:
    german = common_pb2.LanguagePair(src="en", tgt="de")
    index = index_of(
        *RETRIED,
        change("j2", FAILED, 100, error=JOB_FAILED, session_id="s2", pair=german),
        change("j3", PLACED, 110, attempt=1, node_id="n2", tenant="t2", created_ms=NOW + 5),
    )

    def ids(**query: object) -> list[str]:
        return [job.job_id for job in job_page(index, JobQuery(**query)).jobs]  # type: ignore[arg-type]

    assert ids() == ["j3", "j2", "j1"]
    assert ids(desc=False, offset=1, limit=1) == ["j2"]
    assert ids(sort="took") == ["j2", "j1", "j3"]
    assert ids(state="done") == ["j1"]
    assert ids(error="JOB_FAILED") == ["j2"]
    assert ids(tgt="de") == ["j2"]
    assert ids(node="n1") == ["j1"]
    assert ids(node="n2", session="s1") == ["j3", "j1"]
    assert ids(session="s2") == ["j2"]
    assert ids(tenant="t2") == ["j3"]
    assert ids(from_ms=NOW + 95, to_ms=NOW + 105) == ["j2"]
    assert ids(search="N1") == ["j1"]
    assert ids(search="s2") == ["j2"]
    page = job_page(index, JobQuery(state="done"))
    assert page.total == 1
    assert page.counts == {"active": 1, "retrying": 0, "done": 1, "failed": 1, "cancelled": 0}
    assert page.errors == {}
    assert job_page(index, JobQuery()).errors == {"JOB_FAILED": 1}
