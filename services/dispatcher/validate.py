"""Checks of what gateways, operators and nodes send."""

import re

from lingua_scheduler.services.runtime.audio import UnusableAudioError, job_audio_ms
from lingua_scheduler.services.runtime.checks import Check
from lingua_scheduler.services.runtime.principals import Role, caller
from lingua_scheduler.services.runtime.quotas import tenant_limits
from lingua_scheduler.services.runtime.settings import Settings
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2

_MAX_AUDIO_BYTES = 2 * 1024 * 1024
_REASONS = frozenset(common_pb2.FinalizeReason.values())
_TYPE = re.compile(r"[a-z0-9_]{0,32}")


def check_job(spec: dispatcher_pb2.JobSpec, path: str = "") -> None:
    """Checks a job. Raises InvalidMessageError, which names every bad field below `path`."""
    check = Check(path)
    check.id("session_id", spec.session_id)
    check.pair("pair", spec.pair)
    size = len(spec.audio)
    if not size and not spec.is_flush:
        check.no("audio", "must not be empty, unless is_flush is set")
    elif size > _MAX_AUDIO_BYTES:
        check.no("audio", f"has {size} bytes; at most {_MAX_AUDIO_BYTES} are allowed")
    check.audio_format("audio_format", spec.audio_format)
    check.one_of("reason", spec.reason, _REASONS, "a FinalizeReason")
    # What most jobs leave out.
    if spec.tenant:
        check.id("tenant", spec.tenant)
    if spec.job_type and not _TYPE.fullmatch(spec.job_type):
        check.no("job_type", "must be at most 32 characters of a-z 0-9 _")
    if spec.features:
        check.features("features", spec.features)
    if spec.required_stages:
        check.stages("required_stages", spec.required_stages)
    if spec.preferred_node_id or spec.strict:
        check.preference(spec.preferred_node_id, spec.strict)
    if spec.traceparent:
        check.text("traceparent", spec.traceparent, 64)
    check.done()


def set_limits(spec: dispatcher_pb2.JobSpec, settings: Settings, path: str = "") -> None:
    """Says what the job's tenant may use, and what the job uses of it, unless a service has.

    Raises:
        InvalidMessageError: how much it uses cannot be told from its audio.
    """
    principal = caller()
    if principal is not None and principal.role is Role.SERVICE:
        return
    spec.limits.CopyFrom(tenant_limits(settings))
    spec.audio_ms = 0
    if spec.limits.audio_ms_per_minute:
        check = Check(path)
        try:
            spec.audio_ms = round(job_audio_ms(spec.audio_format, spec.audio))
        except UnusableAudioError as error:
            check.no("audio", str(error))
        check.done()


def check_id(field: str, value: str) -> None:
    """Checks an id that something is asked for by."""
    check = Check()
    check.id(field, value)
    check.done()


def check_list(request: dispatcher_pb2.ListJobsRequest) -> None:
    """Checks a page of jobs."""
    check = Check()
    check.id("session_id", request.session_id, optional=True)
    check.id("node_id", request.node_id, optional=True)
    check.one_of("state", request.state, range(10), "a JobState")
    check.number("page_size", request.page_size, 0, 1000)
    check.cursor("page_token", request.page_token)
    check.done()
