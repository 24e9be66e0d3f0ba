"""What a session's jobs are made of, and how the client is told of their results."""

from lingua_scheduler.services.runtime.audio import as_job_audio, silence
from lingua_scheduler.services.runtime.job_ids import job_id, job_key
from lingua_scheduler.services.session_gateway.session_rules import SessionRules
from lingua_scheduler.services.session_gateway.speech import Direction
from lingua_scheduler.services.session_gateway.utterance import Utterance
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, session_pb2

# What a node is sent that holds all there is of a sentence. Long enough to be audio to any of them.
_REST_MS = 100


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

    def job_id(self, index: int, direction: Direction) -> str:
        """The id that the job of an utterance has or will have."""
        return job_id(job_key(self._bare(index, direction)))

    def spec(self, utterance: Utterance, now: float) -> dispatcher_pb2.JobSpec:
        """The job of an utterance that has its chunks."""
        options, rules = self._opened.options, self._rules
        spec = self._bare(utterance.index, utterance.direction)
        manual = utterance.reason == common_pb2.FINALIZE_REASON_IS_FINAL
        audio_format = self._opened.audio_format
        chunks = utterance.chunks or silence(audio_format, _REST_MS)
        spec.audio = as_job_audio(audio_format, chunks)
        spec.audio_format.CopyFrom(audio_format)
        spec.padding_ms = rules.padding_manual_ms if manual else rules.padding_auto_ms
        spec.reason = utterance.reason
        spec.preferred_node_id = options.preferred_node_id
        spec.strict = options.strict
        spec.deadline_ms = max(1, int(utterance.deadline_ms - now))
        spec.partial_interval_ms = options.partial_interval_ms
        spec.session_epoch = self._epoch
        spec.first_chunk_client_ms = utterance.first_client_ms
        spec.audio_ms = round(utterance.audio_ms)
        if self._limits is not None and (self._limits.jobs or self._limits.audio_ms_per_minute):
            spec.limits.CopyFrom(self._limits)
        return spec

    def attach(self, utterance: Utterance) -> dispatcher_pb2.AttachJob:
        """How a job is taken up whose audio a dispatcher has."""
        return dispatcher_pb2.AttachJob(job_id=utterance.job_id, session_epoch=self._epoch)

    def _bare(self, index: int, direction: Direction) -> dispatcher_pb2.JobSpec:
        """What the job's key is made of."""
        return dispatcher_pb2.JobSpec(
            tenant=self._opened.tenant,
            session_id=self._session_id,
            utterance_index=index,
            pair=language_pair(direction),
            features=self._opened.options.features,
            require_tts=self._opened.options.require_tts,
        )


def language_pair(direction: Direction) -> common_pb2.LanguagePair:
    """A direction as messages have it."""
    return common_pb2.LanguagePair(src=direction.src, tgt=direction.tgt)


def result_event(
    now: float, utterance: Utterance, delivered: dispatcher_pb2.JobDelivered
) -> session_pb2.Result:
    """A result as the client gets it, with where the time went."""
    result = delivered.result
    timings = session_pb2.ResultTimings(
        audio_ms=round(utterance.audio_ms),
        hangover_ms=round(utterance.cut_ms - utterance.ended_ms),
        dispatch_ms=round(max(0.0, utterance.accepted_ms - utterance.cut_ms)),
        node_ms=round(utterance.result_ms - (utterance.accepted_ms or utterance.cut_ms)),
        deliver_ms=round(now - utterance.result_ms),
        stages=result.timings,
    )
    return session_pb2.Result(
        utterance_index=utterance.index,
        direction=language_pair(utterance.direction),
        kind=result.kind,
        texts=result.texts,
        speech=result.speech,
        speech_format=result.speech_format,
        joined_utterances=result.joined_utterances,
        job_id=utterance.job_id,
        node_id=delivered.node_id,
        attempts=delivered.attempts,
        timings=timings,
    )
