"""Jobs: a page of recent ones, and one with all its attempts and steps."""

from typing import Any

from lingua_scheduler.services.console.documents.explanations import explanation
from lingua_scheduler.services.console.documents.query import Query
from lingua_scheduler.services.console.services.sources import Sources
from lingua_scheduler.services.console.store.job_pages import SORTS, JobQuery, job_page, oldest_ms
from lingua_scheduler.services.console.store.jobs import OVER, STATES, IndexedJob, state_of
from lingua_scheduler.services.runtime.errors import (
    DependencyDownError,
    JobNotFoundError,
    reason_name,
)
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2

TRACE_ID = "{trace_id}"

_ERRORS = tuple(reason_name(reason) for reason in common_pb2.ErrorReason.values() if reason)
# Names that are built once: a page has many of them.
_CUTS: dict[int, str] = {
    number: name.removeprefix("FINALIZE_REASON_") if number else ""
    for name, number in common_pb2.FinalizeReason.items()
}
_KINDS: dict[int, str] = {
    number: name.removeprefix("KIND_") if number else ""
    for name, number in dispatcher_pb2.JobResult.Kind.items()
}
_STEPS: dict[int, str] = {
    number: name.removeprefix("KIND_") for name, number in common_pb2.JobStep.Kind.items()
}


def jobs(sources: Sources, query: Query) -> dict[str, Any]:
    """The document `jobs`.

    `gap_ms` is the time at which changes were found to be missing, if that ever happened.
    """
    asked = JobQuery(
        search=query.text("search"),
        state=query.choice("state", STATES),
        error=query.choice("error", _ERRORS),
        src=query.language("src"),
        tgt=query.language("tgt"),
        node=query.id("node"),
        session=query.id("session"),
        tenant=query.id("tenant"),
        from_ms=query.time("from_ms"),
        to_ms=query.time("to_ms"),
        sort=query.choice("sort", SORTS, "changed"),
        desc=query.flag("desc", True),
        offset=query.offset(),
        limit=query.limit(),
    )
    query.done()
    page = job_page(sources.jobs, asked)
    document: dict[str, Any] = {
        "rows": {job.job_id: job_row(job) for job in page.jobs},
        "order": [job.job_id for job in page.jobs],
        "total": page.total,
        "offset": asked.offset,
        "limit": asked.limit,
        "counts": page.counts,
        "errors": page.errors,
    }
    if oldest := oldest_ms(sources.jobs):
        document["oldest_ms"] = oldest
    if sources.jobs.gap_ms:
        document["gap_ms"] = sources.jobs.gap_ms
    return document


async def job(sources: Sources, job_id: str, query: Query, trace_template: str) -> dict[str, Any]:
    """The document `jobs/<id>`."""
    query.required_id("job_id", job_id)
    query.done()
    known = sources.jobs.get(job_id)
    try:
        record = await sources.job_reads.get(job_id)
    except (DependencyDownError, JobNotFoundError):
        # Its record may have expired before it left the index.
        if known is None:
            raise
        shown = {**job_row(known), **_details_of_index(known)}
    else:
        shown = {**row_of_record(record), **_details(record)}
    if trace_template:
        # docs/decisions/0018: the job id is the trace id.
        shown["trace_url"] = trace_template.replace(TRACE_ID, job_id)
    return {"job": shown}


def job_row(job: IndexedJob) -> dict[str, Any]:
    """A job of the index as a table shows it."""
    row: dict[str, Any] = {
        "id": job.job_id,
        "state": job.state,
        "src": job.src,
        "tgt": job.tgt,
        "tenant": job.tenant,
        "session": job.session_id,
        "utterance": job.utterance_index,
        "cut": cut_name(job.cut),
        "node": job.node_id,
        "nodes": job.nodes,
        "attempts": len(job.attempts),
        "created_ms": job.created_ms,
        "changed_ms": job.changed_ms,
    }
    if job.is_over:
        row["took_ms"] = job.took_ms
    return _with_end(row, job.error, kind_name(job.kind))


def row_of_record(job: dispatcher_pb2.Job) -> dict[str, Any]:
    """A job's record as a table shows it."""
    state = state_of(job.state)
    done = [each for each in job.attempts if each.outcome == "done"]
    last = (done or list(job.attempts))[-1:]
    row: dict[str, Any] = {
        "id": job.job_id,
        "state": state,
        "src": job.pair.src,
        "tgt": job.pair.tgt,
        "tenant": job.tenant,
        "session": job.session_id,
        "utterance": job.utterance_index,
        "cut": cut_name(job.reason),
        "node": last[0].node_id if last else "",
        "nodes": list(dict.fromkeys(each.node_id for each in job.attempts)),
        "attempts": len(job.attempts),
        "created_ms": job.created_ms,
        "changed_ms": job.updated_ms,
    }
    if state in OVER:
        ended_ms = done[0].ended_ms if done else job.updated_ms
        row["took_ms"] = max(0, ended_ms - job.created_ms)
    error = reason_name(job.error.reason) if job.HasField("error") and job.error.reason else ""
    return _with_end(row, error, kind_name(job.result_kind))


def cut_name(reason: int) -> str:
    """Why an utterance was cut, such as "IS_FINAL"."""
    return _CUTS.get(reason, str(reason))


def kind_name(kind: int) -> str:
    """The kind of a result, such as "HELD"; "" if there is none."""
    return _KINDS.get(kind, str(kind))


def _with_end(row: dict[str, Any], error: str, kind: str) -> dict[str, Any]:
    if error:
        row["error"] = error
    if kind:
        row["kind"] = kind
    return row


def _details(job: dispatcher_pb2.Job) -> dict[str, Any]:
    details: dict[str, Any] = {
        "home": job.home_instance,
        "attempt_list": [_attempt(each) for each in job.attempts],
        "steps": [_step(each) for each in job.steps],
        "joined": list(job.joined_utterances),
        "turn_broken": job.turn_broken,
    }
    if job.HasField("error"):
        reason = reason_name(job.error.reason)
        details["failure"] = {
            "reason": reason,
            "message": job.error.message,
            "explanation": explanation(reason),
        }
    return details


def _details_of_index(job: IndexedJob) -> dict[str, Any]:
    """What is known while the dispatcher cannot be asked."""
    attempts = [
        _without_zeros(
            number=each.number,
            node=each.node_id,
            reserved_ms=each.placed_ms,
            ended_ms=each.ended_ms,
            outcome=each.outcome,
            detail="",
        )
        for each in job.attempts
    ]
    details: dict[str, Any] = {
        "home": "",
        "attempt_list": attempts,
        "steps": [],
        "joined": [],
        "turn_broken": False,
    }
    if job.error:
        details["failure"] = {
            "reason": job.error,
            "message": "",
            "explanation": explanation(job.error),
        }
    return details


def _attempt(attempt: dispatcher_pb2.AttemptRecord) -> dict[str, Any]:
    return _without_zeros(
        number=attempt.attempt,
        node=attempt.node_id,
        reserved_ms=attempt.reserved_ms,
        acked_ms=attempt.acked_ms,
        ended_ms=attempt.ended_ms,
        outcome=attempt.outcome,
        detail=attempt.detail,
    )


def _step(step: common_pb2.JobStep) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "kind": _STEPS.get(step.kind, str(step.kind)),
        "attempt": step.attempt,
        "started_us": step.started_us,
        "took_us": step.took_us,
    }
    if step.node_id:
        shown["node"] = step.node_id
    if step.detail:
        shown["detail"] = step.detail
    return shown


def _without_zeros(**fields: str | int) -> dict[str, Any]:
    """Leaves out times that are not known."""
    return {name: value for name, value in fields.items() if value != 0}
