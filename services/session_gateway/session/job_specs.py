"""What a session's jobs are made of, and how the client is told of their results."""

from collections.abc import Sequence

from lingua_scheduler.services.runtime.contract.audio import as_job_audio
from lingua_scheduler.services.runtime.contract.job_ids import job_id, job_key_around
from lingua_scheduler.services.session_gateway.session.rules import SessionRules
from lingua_scheduler.services.session_gateway.session.speech import Direction
from lingua_scheduler.services.session_gateway.session.utterance import Utterance
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, session_pb2


class JobSpecs:
    """Makes the jobs of one session; the same utterance always makes the same job.

    Args:
        session_id: of the session.
        opened: what the client asked for when it opened the session.
        epoch: this gateway's hold on it.
        rules: the numbers.
        limits: what its tenant may use.
    """

    def __init__(
        self,
        *,
        session_id: str,
        opened: session_pb2.NewSession,
        epoch: int,
        rules: SessionRules,
        limits: common_pb2.TenantLimits | None = None,
    ) -> None:
        self._session_id = session_id
        self._opened = opened
        self._epoch = epoch
        self._rules = rules
        self._limits = limits
        # By direction: what all its jobs have in common, and its share in their keys.
        self._common: dict[Direction, tuple[dispatcher_pb2.JobSpec, tuple[str, str]]] = {}

    def job_id(self, index: int, direction: Direction) -> str:
        """The id that the job of an utterance has or will have."""
        before, after = self._of(direction)[1]
        return job_id(f"{before}{index}{after}")

    def spec(self, utterance: Utterance, now: float) -> dispatcher_pb2.JobSpec:
        """The job of an utterance that has its chunks."""
        spec = dispatcher_pb2.JobSpec()
        self.fill(spec, utterance, now)
        return spec

    def fill(self, spec: dispatcher_pb2.JobSpec, utterance: Utterance, now: float) -> None:
        """Makes the job of an utterance that has its chunks where it is to be."""
        spec.CopyFrom(self._of(utterance.direction)[0])
        spec.utterance_index = utterance.index
        manual = utterance.reason == common_pb2.FINALIZE_REASON_IS_FINAL
        rules, audio_format = self._rules, self._opened.audio_format
        spec.audio = as_job_audio(audio_format, utterance.chunks)
        if utterance.included:
            spec.audio = utterance.included_audio + spec.audio
            spec.included_utterances.extend(utterance.included)
        elif utterance.is_flush:
            spec.is_flush = True
        if utterance.held:
            spec.held_utterances.extend(utterance.held)
        spec.padding_ms = rules.padding_manual_ms if manual else rules.padding_auto_ms
        spec.reason = utterance.reason
        spec.deadline_ms = max(1, int(utterance.deadline_ms - now))
        spec.first_chunk_client_ms = utterance.first_client_ms
        spec.audio_ms = utterance.audio_ms

    def fill_attach(self, attach: dispatcher_pb2.AttachJob, utterance: Utterance) -> None:
        """Says how a job is taken up whose audio a dispatcher has."""
        attach.job_id, attach.session_epoch = utterance.job_id, self._epoch

    def _of(self, direction: Direction) -> tuple[dispatcher_pb2.JobSpec, tuple[str, str]]:
        known = self._common.get(direction)
        if known is None:
            spec = self._all_have(direction)
            known = self._common[direction] = spec, job_key_around(spec)
        return known

    def _all_have(self, direction: Direction) -> dispatcher_pb2.JobSpec:
        opened, options, limits = self._opened, self._opened.options, self._limits
        has_limits = limits is not None and (limits.jobs or limits.audio_ms_per_minute)
        return dispatcher_pb2.JobSpec(
            tenant=opened.tenant,
            session_id=self._session_id,
            pair=common_pb2.LanguagePair(src=direction.src, tgt=direction.tgt),
            features=options.features,
            audio_format=opened.audio_format,
            require_tts=options.require_tts,
            preferred_node_id=options.preferred_node_id,
            strict=options.strict,
            partial_interval_ms=options.partial_interval_ms,
            session_epoch=self._epoch,
            limits=limits if has_limits else None,
        )


def set_pair(pair: common_pb2.LanguagePair, direction: Direction) -> None:
    """Writes a direction as messages have it."""
    pair.src, pair.tgt = direction


def fill_result(
    told: session_pb2.Result,
    now: float,
    utterance: Utterance,
    delivered: dispatcher_pb2.JobDelivered,
    lost: Sequence[int] = (),
) -> None:
    """Makes a result as the client gets it, with where the time went."""
    result = delivered.result
    told.utterance_index = utterance.index
    set_pair(told.direction, utterance.direction)
    told.kind = result.kind
    told.texts.CopyFrom(result.texts)
    told.speech = result.speech
    told.speech_format.CopyFrom(result.speech_format)
    if result.joined_utterances:
        told.joined_utterances.extend(result.joined_utterances)
    if utterance.included and result.kind != dispatcher_pb2.JobResult.KIND_HELD:
        # They were in its audio, whatever the node says.
        told.joined_utterances[:] = sorted({*told.joined_utterances, *utterance.included})
    if lost:
        told.lost_utterances.extend(lost)
    told.job_id = utterance.job_id
    told.node_id = delivered.node_id
    told.attempts = delivered.attempts
    told.turn_broken = delivered.turn_broken
    timings, began_ms = told.timings, utterance.accepted_ms or utterance.cut_ms
    timings.audio_ms = utterance.audio_ms
    timings.hangover_ms = round(utterance.cut_ms - utterance.ended_ms)
    timings.dispatch_ms = round(max(0.0, utterance.accepted_ms - utterance.cut_ms))
    timings.node_ms = round(utterance.result_ms - began_ms)
    timings.deliver_ms = round(now - utterance.result_ms)
    if result.timings:
        timings.stages.extend(result.timings)
