"""Sessions: a page of them, and one as a timeline of utterances. Never what was said."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lingua_scheduler.services.console.documents.jobs import (
    cut_name,
    job_row,
    kind_name,
    row_of_record,
)
from lingua_scheduler.services.console.documents.query import Query
from lingua_scheduler.services.console.services.sources import Sources
from lingua_scheduler.services.console.store.jobs import IndexedJob, JobIndex
from lingua_scheduler.services.console.store.pages import page_of
from lingua_scheduler.services.runtime.errors import DependencyDownError, SessionNotFoundError
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, session_pb2

# An utterance and the language that a job of it translates to: in a room there is one job for each
# language.
Place = tuple[int, str]

_SHOWN_DIRECTIONS = 6
_STATES = ("connected", "away")
_MISSING = frozenset(("failed", "cancelled"))
_SORTS: dict[str, Callable[[session_pb2.Session], Any]] = {
    "opened": lambda session: (session.opened_ms, session.session_id),
    "last": lambda session: (session.last_chunk_ms, session.session_id),
    "utterances": lambda session: (session.next_utterance_index, session.session_id),
    "missing": lambda session: (session.missing, session.session_id),
}


async def sessions(sources: Sources, query: Query) -> dict[str, Any]:
    """The document `sessions`."""
    search = query.text("search").lower()
    tenant = query.id("tenant")
    state = query.choice("state", _STATES)
    sort = query.choice("sort", _SORTS, "opened")
    desc = query.flag("desc", True)
    offset, limit = query.offset(), query.limit()
    query.done()
    listed = await sources.sessions.list()
    found = [
        each
        for each in listed.sessions
        if tenant in ("", each.tenant)
        and search in each.session_id.lower()
        and (not state or each.connected == (state == "connected"))
    ]
    page = page_of(found, key=_SORTS[sort], desc=desc, offset=offset, limit=limit)
    return {
        "rows": {each.session_id: _row(each, sources.jobs) for each in page},
        "order": [each.session_id for each in page],
        "total": len(found),
        "offset": offset,
        "limit": limit,
        "partial": listed.is_partial,
    }


async def session(sources: Sources, session_id: str, query: Query) -> dict[str, Any]:
    """The document `sessions/<id>`: the newest utterances first, in a room by language.

    A session that is over is shown as long as the index has jobs of it.
    """
    query.required_id("session_id", session_id)
    offset, limit = query.offset(), query.limit()
    query.done()
    jobs = _by_utterance(sources.jobs.of_session(session_id))
    shown = await _session(sources, session_id, list(jobs.values()))
    order = sorted(jobs, key=lambda place: (-place[0], place[1]))[offset : offset + limit]
    records = await sources.job_reads.get_all(jobs[place].job_id for place in order)
    joined_into = _joined_into(sources, jobs, records)
    languages = Counter(index for index, _ in jobs)
    rows = {}
    for place in order:
        row = _utterance(jobs[place], records.get(jobs[place].job_id))
        if place in joined_into:
            row["joined_into"] = joined_into[place]
        index, tgt = place
        rows[f"{index}" if languages[index] == 1 else f"{index}:{tgt}"] = row
    return {
        "session": shown,
        "utterances": {
            "rows": rows,
            "order": list(rows),
            "total": len(jobs),
            "offset": offset,
            "limit": limit,
        },
    }


async def _session(sources: Sources, session_id: str, jobs: Sequence[IndexedJob]) -> dict[str, Any]:
    try:
        session = await sources.sessions.get(session_id)
    except (SessionNotFoundError, DependencyDownError) as error:
        if not jobs:
            raise
        is_over = isinstance(error, SessionNotFoundError)
        return {**_row_of_jobs(session_id, jobs), "over": is_over, "turns": []}
    return {
        **_row(session, sources.jobs),
        "epoch": session.epoch,
        "over": False,
        "turns": [
            {
                "src": turn.direction.src,
                "tgt": turn.direction.tgt,
                "node": turn.node_id,
                "holds": turn.holds_in_row,
            }
            for turn in session.turns
        ],
    }


def _row(session: session_pb2.Session, jobs: JobIndex) -> dict[str, Any]:
    row: dict[str, Any] = {
        "id": session.session_id,
        "tenant": session.tenant,
        "gateway": session.gateway_instance,
        "connected": session.connected,
        "opened_ms": session.opened_ms,
        "utterances": session.next_utterance_index,
        "waiting": len(session.waiting),
        "results": session.results,
        "missing": session.missing,
        "directions": _directions(jobs.of_session(session.session_id)),
    }
    if session.last_chunk_ms:
        row["last_chunk_ms"] = session.last_chunk_ms
    if session.room_id:
        row["room"] = session.room_id
    return row


def _row_of_jobs(session_id: str, jobs: Sequence[IndexedJob]) -> dict[str, Any]:
    """What recent jobs tell of a session that gateways do not know, or cannot be asked for."""
    missing = sum(job.state in _MISSING for job in jobs)
    over = sum(job.is_over for job in jobs)
    return {
        "id": session_id,
        "tenant": jobs[0].tenant,
        "gateway": "",
        "connected": False,
        "opened_ms": min(job.created_ms for job in jobs),
        "utterances": 1 + max(job.utterance_index for job in jobs),
        "waiting": len(jobs) - over,
        "results": over - missing,
        "missing": missing,
        "directions": _directions(jobs),
        "epoch": 0,
    }


def _directions(jobs: Sequence[IndexedJob]) -> list[str]:
    return sorted({f"{job.src}:{job.tgt}" for job in jobs})[:_SHOWN_DIRECTIONS]


def _by_utterance(jobs: Sequence[IndexedJob]) -> dict[Place, IndexedJob]:
    """The job of each utterance and language; the last one that changed if there are several."""
    ordered = sorted(jobs, key=lambda job: job.changed_ms)
    return {(job.utterance_index, job.tgt): job for job in ordered}


def _joined_into(
    sources: Sources,
    jobs: Mapping[Place, IndexedJob],
    records: Mapping[str, dispatcher_pb2.Job],
) -> dict[Place, int]:
    """The utterance whose result contains another one, by that other one."""
    found: dict[Place, int] = {}
    for (index, tgt), job in jobs.items():
        record = records.get(job.job_id) or sources.job_reads.known(job.job_id)
        if record is not None:
            found.update(((joined, tgt), index) for joined in record.joined_utterances)
    return found


def _utterance(job: IndexedJob, record: dispatcher_pb2.Job | None) -> dict[str, Any]:
    row = job_row(job) if record is None else row_of_record(record)
    shown: dict[str, Any] = {
        "index": job.utterance_index,
        "job_id": job.job_id,
        "src": job.src,
        "tgt": job.tgt,
        "cut": cut_name(job.cut),
        "state": row["state"],
        "node": row["node"],
        "attempts": row["attempts"],
        "missing": row["state"] in _MISSING,
        "joined": list(record.joined_utterances) if record is not None else [],
    }
    if "error" in row:
        shown["error"] = row["error"]
    if kind := row.get("kind") or kind_name(job.kind):
        shown["kind"] = kind
    return shown | (_times(record) if record is not None else {})


def _times(record: dispatcher_pb2.Job) -> dict[str, int]:
    """When it was spoken and cut, and when its result was there, as far as steps tell."""
    times = {}
    gather = next((s for s in record.steps if s.kind == common_pb2.JobStep.KIND_GATHER), None)
    if gather is not None and gather.started_us:
        times["spoken_from_ms"] = gather.started_us // 1000
        times["cut_ms"] = (gather.started_us + gather.took_us) // 1000
    if record.state == common_pb2.JOB_STATE_DONE:
        ends = _ends(record, common_pb2.JobStep.KIND_DELIVER) or _ends(
            record, common_pb2.JobStep.KIND_NODE
        )
        if ends:
            times["result_ms"] = max(ends) // 1000
    if "cut_ms" in times and "result_ms" in times:
        # The clocks of two machines may differ.
        times["latency_ms"] = max(0, times["result_ms"] - times["cut_ms"])
    return times


def _ends(record: dispatcher_pb2.Job, kind: common_pb2.JobStep.Kind.ValueType) -> list[int]:
    return [step.started_us + step.took_us for step in record.steps if step.kind == kind]
