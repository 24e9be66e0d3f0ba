"""Text output for jobs."""

import time
from collections.abc import Iterable

from lingua_scheduler.cli.views.job_waterfall import waterfall
from lingua_scheduler.cli.views.output import (
    ago,
    duration,
    enum_name,
    moment,
    one_line,
    span,
)
from lingua_scheduler.cli.views.states import state
from lingua_scheduler.cli.views.table import Column, fact_page, table
from lingua_scheduler.services.runtime.errors import reason_name
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2

_STATE = common_pb2.DESCRIPTOR.enum_types_by_name["JobState"]
_REASON = common_pb2.DESCRIPTOR.enum_types_by_name["FinalizeReason"]
_KIND = dispatcher_pb2.JobResult.DESCRIPTOR.enum_types_by_name["Kind"]
_OVER = (
    common_pb2.JOB_STATE_DONE,
    common_pb2.JOB_STATE_FAILED,
    common_pb2.JOB_STATE_CANCELLED,
)


def state_name(number: common_pb2.JobState.ValueType) -> str:
    """The state as users type and see it."""
    return enum_name(_STATE, number).lower()


STATES = {
    state_name(number): number
    for number in common_pb2.JobState.values()
    if number != common_pb2.JOB_STATE_UNSPECIFIED
}


def is_over(number: common_pb2.JobState.ValueType) -> bool:
    """Whether this state is final."""
    return number in _OVER


def job_list(jobs: Iterable[dispatcher_pb2.Job]) -> str:
    """One job per line."""
    now_ms = _now_ms()
    return table(
        (
            *(Column("JOB"), Column("STATE"), Column("PAIR"), Column("SESSION", 1)),
            *(Column("UTTERANCE", 2), Column("ATTEMPTS", 3), Column("NODE", 5)),
            *(Column("AGE", 4), Column("TOOK")),
        ),
        [
            (
                job.job_id,
                _state(job),
                _pair(job),
                job.session_id or "-",
                str(job.utterance_index),
                str(len(job.attempts)),
                job.attempts[-1].node_id if job.attempts else "-",
                span(now_ms - job.created_ms) if job.created_ms else "-",
                _took(job),
            )
            for job in jobs
        ],
    )


def job_page(response: dispatcher_pb2.GetJobResponse) -> str:
    """Everything about one job, one fact per line, then its steps."""
    job, now_ms = response.job, _now_ms()
    facts = [
        ("state", _state(job)),
        ("pair", _pair(job)),
        ("session", job.session_id or "-"),
        ("utterance", str(job.utterance_index)),
        ("cut by", enum_name(_REASON, job.reason).lower() if job.reason else "-"),
        ("tenant", job.tenant or "-"),
        ("key", job.job_key or "-"),
        ("home", job.home_instance or "-"),
        ("created", _when(job.created_ms, now_ms)),
        ("updated", _when(job.updated_ms, now_ms)),
        ("took", _took(job)),
    ]
    if job.HasField("error"):
        facts += _error_facts(job.error)
    if response.HasField("result"):
        facts += _result_facts(response.result)
    else:
        facts.append(("result", "none is kept"))
    steps = waterfall(response, over=is_over(job.state), now_us=now_ms * 1000)
    return f"{fact_page(('job', job.job_id), facts)}\n\n{steps}"


def _error_facts(error: common_pb2.Error) -> list[tuple[str, str]]:
    facts = [("error", f"{reason_name(error.reason)}: {one_line(error.message)}")]
    facts += [("bad field", f"{bad.field}: {bad.description}") for bad in error.field_violations]
    facts += [(f"  {key}", one_line(error.metadata[key])) for key in sorted(error.metadata)]
    return facts


def _result_facts(result: dispatcher_pb2.JobResult) -> list[tuple[str, str]]:
    texts = result.texts
    facts = [("result", enum_name(_KIND, result.kind).lower())]
    named = (
        ("recognised", texts.source),
        ("repaired", texts.repaired),
        ("translated", texts.translated),
    )
    facts += [(name, one_line(text)) for name, text in named if text]
    facts.append(("speech", f"{len(result.speech)} bytes" if result.speech else "none"))
    if result.joined_utterances:
        facts.append(("joined", "utterances " + " ".join(map(str, result.joined_utterances))))
    return facts


def _state(job: dispatcher_pb2.Job) -> str:
    return state(state_name(job.state))


def _pair(job: dispatcher_pb2.Job) -> str:
    return f"{job.pair.src}:{job.pair.tgt}"


def _took(job: dispatcher_pb2.Job) -> str:
    """From the first reservation to the effective end; late attempts do not count."""
    done = [each.ended_ms for each in job.attempts if each.outcome == "done" and each.ended_ms]
    ended_ms = min(done) if done else job.updated_ms
    if not (is_over(job.state) and job.created_ms and ended_ms):
        return "-"
    return duration(ended_ms - job.created_ms)


def _when(time_ms: int, now_ms: int) -> str:
    return f"{moment(time_ms)} ({ago(time_ms, now_ms)})" if time_ms else "-"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
