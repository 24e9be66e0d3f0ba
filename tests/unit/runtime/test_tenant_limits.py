"""The limits of a tenant: where they come from, and who may set them."""

from collections.abc import Callable
from contextvars import copy_context

import pytest

from lingua_scheduler.services.dispatcher.validate import set_limits
from lingua_scheduler.services.runtime import errors
from lingua_scheduler.services.runtime.auth.principals import Principal, Role, set_caller
from lingua_scheduler.services.runtime.auth.quotas import quota_error, tenant_limits
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2

SETTINGS = Settings(quota_sessions=1, quota_jobs=2, quota_audio_s_per_minute=3)
BY_SETTINGS = common_pb2.TenantLimits(sessions=1, jobs=2, audio_ms_per_minute=3000)
BY_TOKEN = common_pb2.TenantLimits(sessions=7, jobs=0, audio_ms_per_minute=9000)
CLIENT = Principal(role=Role.CLIENT, tenant="t")
RICH = Principal(role=Role.CLIENT, tenant="t", limits=BY_TOKEN)
SERVICE = Principal(role=Role.SERVICE)


def called_by(principal: Principal | None, work: Callable[[], object]) -> object:
    """The limits that a call gets."""

    def call() -> object:
        if principal is not None:
            set_caller(principal)
        return work()

    return copy_context().run(call)


@pytest.mark.parametrize(
    ("principal", "limits"), [(None, BY_SETTINGS), (CLIENT, BY_SETTINGS), (RICH, BY_TOKEN)]
)
def test_limits_are_those_of_the_token_else_of_the_settings(
    principal: Principal | None, limits: common_pb2.TenantLimits
) -> None:
    assert called_by(principal, lambda: tenant_limits(SETTINGS)) == limits


def a_job(audio: bytes = bytes(3200)) -> dispatcher_pb2.JobSpec:
    """100 ms of speech that says of itself what it likes."""
    return dispatcher_pb2.JobSpec(
        audio=audio,
        audio_format=common_pb2.AudioFormat(
            encoding=common_pb2.AUDIO_ENCODING_PCM_S16LE, sample_rate_hz=16000, channels=1
        ),
        limits=common_pb2.TenantLimits(jobs=1000),
        audio_ms=1,
    )


@pytest.mark.parametrize(
    ("principal", "limits"), [(None, BY_SETTINGS), (CLIENT, BY_SETTINGS), (RICH, BY_TOKEN)]
)
def test_only_a_service_may_set_the_limits_of_a_job(
    principal: Principal | None, limits: common_pb2.TenantLimits
) -> None:
    spec = a_job()
    called_by(principal, lambda: set_limits(spec, SETTINGS))
    assert (spec.limits, spec.audio_ms) == (limits, 100)

    said = a_job()
    called_by(SERVICE, lambda: set_limits(said, SETTINGS))
    assert said == a_job()


def test_audio_that_cannot_be_measured_is_refused_if_it_is_limited() -> None:
    with pytest.raises(errors.InvalidMessageError) as caught:
        set_limits(a_job(b"odd"), SETTINGS, "job.")
    assert caught.value.fields[0][0] == "job.audio"
    set_limits(a_job(b"odd"), Settings())


def test_the_retry_time_is_capped() -> None:
    reply = [b"QUOTA_EXCEEDED", b"audio", 10**14, b"limit", 1, b"retry_ms", 10**14]
    said = errors.to_proto(quota_error(reply))
    assert said.retry_after_ms == 3_600_000
    assert said.metadata["used"] == str(10**14)
