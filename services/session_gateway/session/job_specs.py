"""The jobs of a session as they are submitted to dispatchers."""

from lingua_scheduler.services.runtime.contract.audio import as_job_audio
from lingua_scheduler.services.runtime.contract.job_ids import job_id, job_key_around
from lingua_scheduler.services.session_gateway.session.rules import SessionRules
from lingua_scheduler.services.session_gateway.session.speech import Direction
from lingua_scheduler.services.session_gateway.session.utterance import Utterance
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, session_pb2

_GATHER = common_pb2.JobStep.KIND_GATHER
_HANGOVER = common_pb2.JobStep.KIND_HANGOVER
_SUBMIT = common_pb2.JobStep.KIND_SUBMIT


class JobSpecs:
    """Makes the jobs of one session. The same utterance always makes the same job.

    Args:
        session_id: of the session.
        opened: what the client asked for.
        epoch: of the session at this gateway.
        rules: limits and durations.
        limits: quotas of the session's tenant.
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
        # By direction, and whether jobs are for text only: the fields that all such jobs share, and
        # the text of their keys before and after the index.
        self._shared: dict[
            tuple[Direction, bool], tuple[dispatcher_pb2.JobSpec, tuple[str, str]]
        ] = {}

    def job_id(self, index: int, direction: Direction, *, is_text_only: bool = False) -> str:
        """The id that the job of an utterance has, or will have."""
        before, after = self._of(direction, is_text_only)[1]
        return job_id(f"{before}{index}{after}", self._session_id)

    def spec(self, utterance: Utterance, now: float) -> dispatcher_pb2.JobSpec:
        """The job of an utterance that has its chunks."""
        spec = dispatcher_pb2.JobSpec()
        self.fill(spec, utterance, now)
        return spec

    def fill(self, spec: dispatcher_pb2.JobSpec, utterance: Utterance, now: float) -> None:
        """Fills in the job of an utterance that has its chunks."""
        spec.CopyFrom(self._of(utterance.direction, utterance.is_text_only)[0])
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
        elif not (utterance.continues or utterance.is_flush) and self._opened.HasField("room"):
            # Nobody may have listened to the language for a while, so its last turn was dropped.
            spec.begins_turn = True
        spec.padding_ms = rules.padding_manual_ms if manual else rules.padding_auto_ms
        spec.reason = utterance.reason
        spec.deadline_ms = max(1, int(utterance.deadline_ms - now))
        spec.first_chunk_client_ms = utterance.first_client_ms
        spec.audio_ms = utterance.audio_ms

    def fill_attach(self, attach: dispatcher_pb2.AttachJob, utterance: Utterance) -> None:
        """Fills in a request for the events of a job whose audio a dispatcher has."""
        attach.job_id, attach.session_epoch = utterance.job_id, self._epoch

    def _of(
        self, direction: Direction, is_text_only: bool
    ) -> tuple[dispatcher_pb2.JobSpec, tuple[str, str]]:
        known = self._shared.get((direction, is_text_only))
        if known is None:
            spec = self._shared_by_all(direction)
            if is_text_only:
                spec.require_tts = False
            known = self._shared[direction, is_text_only] = spec, job_key_around(spec)
        return known

    def _shared_by_all(self, direction: Direction) -> dispatcher_pb2.JobSpec:
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


def add_timeline(
    spec: dispatcher_pb2.JobSpec, utterance: Utterance, *, now: float, wall_us: int
) -> None:
    """Adds the timeline of an utterance up to its submission; the dispatcher continues it.

    If another gateway cut the utterance, this gateway knows nothing of the time before.

    Args:
        spec: the utterance's job.
        utterance: is about to be submitted, for the first time or again.
        now: the current time on the clock of the utterance.
        wall_us: the same moment in µs since the epoch.
    """
    offset_us = wall_us - now * 1000

    def add(kind: common_pb2.JobStep.Kind.ValueType, start_ms: float, end_ms: float) -> None:
        start_us, end_us = int(offset_us + start_ms * 1000), int(offset_us + end_ms * 1000)
        spec.steps.add(kind=kind, started_us=start_us, took_us=end_us - start_us)

    if not utterance.is_resumed:
        add(_GATHER, utterance.first_ms, utterance.ended_ms)
        if utterance.cut_ms > utterance.ended_ms:
            add(_HANGOVER, utterance.ended_ms, utterance.cut_ms)
    submit_ms = utterance.failed_ms or utterance.cut_ms
    add(_SUBMIT, submit_ms, submit_ms)
    if utterance.is_resumed:
        spec.steps[-1].detail = "taken up"
    elif utterance.tries > 1:
        spec.steps[-1].detail = f"try {utterance.tries}"
