"""Where an utterance's time went before a dispatcher had it. See job_timeline for what follows."""

from lingua_scheduler.services.session_gateway.utterance import Utterance
from lingua_scheduler.v1 import common_pb2

_GATHER = common_pb2.JobStep.KIND_GATHER
_HANGOVER = common_pb2.JobStep.KIND_HANGOVER
_SUBMIT = common_pb2.JobStep.KIND_SUBMIT


def steps_before(utterance: Utterance, *, now: float, wall_us: int) -> list[common_pb2.JobStep]:
    """The steps up to its submission, which the dispatcher closes.

    Of what another gateway cut, nothing is known from before this one had it.

    Args:
        utterance: is about to be submitted, for the first time or again.
        now: the time, as the utterance has its own.
        wall_us: the same, since the epoch.
    """

    def us(time_ms: float) -> int:
        return round(wall_us + (time_ms - now) * 1000)

    steps = []
    if not utterance.is_taken_up:
        steps.append(_step(_GATHER, us(utterance.first_ms), us(utterance.ended_ms)))
        if utterance.cut_ms > utterance.ended_ms:
            steps.append(_step(_HANGOVER, us(utterance.ended_ms), us(utterance.cut_ms)))
    submit_us = us(utterance.failed_ms or utterance.cut_ms)
    steps.append(_step(_SUBMIT, submit_us, submit_us))
    if utterance.is_taken_up:
        steps[-1].detail = "taken up"
    elif utterance.tries > 1:
        steps[-1].detail = f"try {utterance.tries}"
    return steps


def _step(
    kind: common_pb2.JobStep.Kind.ValueType, start_us: int, end_us: int
) -> common_pb2.JobStep:
    return common_pb2.JobStep(kind=kind, started_us=start_us, took_us=max(0, end_us - start_us))
