"""Checks of requests beyond the limits of their fields."""

from collections.abc import Sequence
from itertools import pairwise

from lingua_scheduler.services.runtime.auth.principals import Role, caller
from lingua_scheduler.services.runtime.auth.quotas import tenant_limits
from lingua_scheduler.services.runtime.contract import limits
from lingua_scheduler.services.runtime.contract.audio import UnusableAudioError, job_audio_ms
from lingua_scheduler.services.runtime.contract.checks import Check
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.v1 import dispatcher_pb2


def check_job(spec: dispatcher_pb2.JobSpec, path: str = "") -> None:
    """Checks a job. Raises InvalidMessageError, which names every invalid field below `path`."""
    has_audio = bool(spec.is_flush or spec.audio)
    needs_more = spec.strict or spec.held_utterances or spec.included_utterances
    # Nearly all jobs end here, and every job comes here.
    if has_audio and not needs_more and limits.fits(spec):
        return
    check = Check(path)
    check.limits(spec)
    if not has_audio:
        check.no("audio", "must not be empty, unless is_flush is set")
    if spec.strict:
        check.preference(spec.preferred_node_id, spec.strict)
    if spec.held_utterances or spec.included_utterances:
        _check_earlier(check, "held_utterances", spec.held_utterances, spec.utterance_index)
        _check_earlier(check, "included_utterances", spec.included_utterances, spec.utterance_index)
        if spec.held_utterances and spec.included_utterances:
            check.no("held_utterances", "must be empty if there are included_utterances")
    check.done()


def _check_earlier(check: Check, field: str, indexes: Sequence[int], before: int) -> None:
    if any(a >= b for a, b in pairwise([*indexes, before])):
        check.no(field, f"must be in rising order, below utterance_index ({before})")


def check_list(request: dispatcher_pb2.ListJobsRequest) -> None:
    """Checks the filters of a list of jobs. Raises InvalidMessageError."""
    check = Check()
    if 0 < request.changed_to_ms < request.changed_from_ms:
        check.no("changed_to_ms", "must not be before changed_from_ms")
    check.done()


def set_limits(spec: dispatcher_pb2.JobSpec, settings: Settings, path: str = "") -> None:
    """Sets the limits of the job's tenant and how much the job uses, unless a service calls.

    A service has set them already.

    Raises:
        InvalidMessageError: the duration of its audio cannot be determined.
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
