"""Searching, filtering and sorting recent jobs."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from typing import Any

from lingua_scheduler.services.console.store.jobs import STATES, IndexedJob, JobIndex
from lingua_scheduler.services.console.store.pages import page_of

SORTS: dict[str, Callable[[IndexedJob], Any]] = {
    "changed": lambda job: (job.changed_ms, job.job_id),
    "created": lambda job: (job.created_ms, job.job_id),
    "took": lambda job: (job.took_ms, job.job_id),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class JobQuery:
    """What is asked for. Empty texts and 0 stand for anything; times are of the last change."""

    search: str = ""
    state: str = ""
    error: str = ""
    src: str = ""
    tgt: str = ""
    node: str = ""
    session: str = ""
    tenant: str = ""
    from_ms: int = 0
    to_ms: int = 0
    sort: str = "changed"
    desc: bool = True
    offset: int = 0
    limit: int = 50


@dataclass(frozen=True, slots=True)
class JobPage:
    """The jobs of one page, and how many match.

    `counts` has all that match but for their state, `errors` all that match but for their error.
    """

    jobs: Sequence[IndexedJob]
    total: int
    counts: dict[str, int]
    errors: dict[str, int]


def job_page(index: JobIndex, query: JobQuery) -> JobPage:
    """Finds the jobs of a page."""
    found = list(_matching(index, query))
    of_error = [job for job in found if query.error in ("", job.error)]
    counts = Counter(job.state for job in of_error)
    of_state = [job for job in found if query.state in ("", job.state)]
    errors = Counter(job.error for job in of_state if job.error)
    both = [job for job in of_state if query.error in ("", job.error)]
    page = page_of(
        both, key=SORTS[query.sort], desc=query.desc, offset=query.offset, limit=query.limit
    )
    return JobPage(page, len(both), {state: counts[state] for state in STATES}, dict(errors))


def oldest_ms(index: JobIndex) -> int:
    """Time since which the index knows of all changes; 0 if it has none."""
    return next((job.changed_ms for job in index), 0)


def ids_with_prefix(ids: Iterable[str], prefix: str, count: int) -> list[str]:
    """The ids that begin with this text, in order."""
    return nsmallest(count, (each for each in ids if each.startswith(prefix)))


def _matching(index: JobIndex, query: JobQuery) -> Iterable[IndexedJob]:
    """Those that fit in everything but state and error."""
    jobs: Iterable[IndexedJob] = index
    if query.session:
        jobs = index.of_session(query.session)
    elif query.node:
        jobs = index.of_node(query.node)
    for test in _tests(query):
        jobs = filter(test, jobs)
    return jobs


def _tests(query: JobQuery) -> Iterable[Callable[[IndexedJob], bool]]:
    """One test for each part of the query that is given: most queries have few."""
    if needle := query.search.lower():
        yield lambda job: _has(job, needle)
    if query.node and query.session:
        yield lambda job: query.node in job.nodes
    if query.src:
        yield lambda job: job.src == query.src
    if query.tgt:
        yield lambda job: job.tgt == query.tgt
    if query.tenant:
        yield lambda job: job.tenant == query.tenant
    if query.from_ms:
        yield lambda job: job.changed_ms >= query.from_ms
    if query.to_ms:
        yield lambda job: job.changed_ms <= query.to_ms


def _has(job: IndexedJob, needle: str) -> bool:
    """Whether the id of the job, of its session or of one of its nodes contains a text."""
    return (
        needle in job.job_id.lower()
        or needle in job.session_id.lower()
        or any(needle in each.node_id.lower() for each in job.attempts)
    )
