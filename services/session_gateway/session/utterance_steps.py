"""Where an utterance's time went before a dispatcher had it. See job_timeline for what follows."""

from lingua_scheduler.services.session_gateway.session.utterance import Utterance
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2

_GATHER = common_pb2.JobStep.KIND_GATHER
_HANGOVER = common_pb2.JobStep.KIND_HANGOVER
_SUBMIT = common_pb2.JobStep.KIND_SUBMIT


def add_steps_before(
    spec: dispatcher_pb2.JobSpec, utterance: Utterance, *, now: float, wall_us: int
) -> None:
    """Adds the steps up to its submission, which the dispatcher closes.

    Of what another gateway cut, nothing is known from before this one had it.

    Args:
        spec: its job.
        utterance: is about to be submitted, for the first time or again.
        now: the time, as the utterance has its own.
        wall_us: the same, since the epoch.
    """
    before_us = wall_us - now * 1000

    def add(kind: common_pb2.JobStep.Kind.ValueType, start_ms: float, end_ms: float) -> None:
        start_us, end_us = int(before_us + start_ms * 1000), int(before_us + end_ms * 1000)
        spec.steps.add(kind=kind, started_us=start_us, took_us=end_us - start_us)

    if not utterance.is_taken_up:
        add(_GATHER, utterance.first_ms, utterance.ended_ms)
        if utterance.cut_ms > utterance.ended_ms:
            add(_HANGOVER, utterance.ended_ms, utterance.cut_ms)
    submit_ms = utterance.failed_ms or utterance.cut_ms
    add(_SUBMIT, submit_ms, submit_ms)
    if utterance.is_taken_up:
        spec.steps[-1].detail = "taken up"
    elif utterance.tries > 1:
        spec.steps[-1].detail = f"try {utterance.tries}"
