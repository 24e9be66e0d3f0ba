"""Dispatcher and nodes in the world of a room: jobs are accepted, retried, held, done, or fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from lingua_scheduler.services.session_gateway.session.speech import MAY_CONTINUE
from lingua_scheduler.services.session_gateway.session.utterance import Utterance
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2
from tests.unit.gateway.room_desk import HELD, TRANSLATED

if TYPE_CHECKING:
    from tests.unit.gateway.room_world.speaker import Life, Speaker
    from tests.unit.gateway.room_world.world import World

# Audio is made of tags of this many bytes, so that a "translation" shows what was in it.
TAG = 8


def tags(audio: bytes) -> list[str]:
    """What was said in some audio, without repetitions."""
    return list(dict.fromkeys(audio[at : at + TAG].decode() for at in range(0, len(audio), TAG)))


def error(reason: common_pb2.ErrorReason.ValueType) -> common_pb2.Error:
    return common_pb2.Error(reason=reason, message="as drawn")


class Nodes:
    """All jobs of one speaker."""

    def __init__(self, world: World, speaker: Speaker) -> None:
        self._world = world
        self._speaker = speaker
        # The life that asked last, by job; results until they are taken.
        self._owners: dict[str, Life] = {}
        self._results: dict[str, dispatcher_pb2.JobResult] = {}
        self._running: set[str] = set()
        self.taken: set[str] = set()
        # What nodes hold, by language: tags by index.
        self._held: dict[str, dict[int, list[str]]] = {}
        self.made: set[tuple[int, str]] = set()
        """Index and language of every job that was made."""

    def submit(self, life: Life, utterance: Utterance) -> None:
        """A gateway submits a job, or attaches to it."""
        job_id = utterance.job_id
        if life.epoch != self._speaker.epoch:
            self._fail(life, utterance, common_pb2.ERROR_REASON_SESSION_TAKEN_OVER)
            return
        self._owners[job_id] = life
        if job_id in self._results:
            self._after(0.0, lambda: self._deliver(job_id, utterance))
        elif job_id in self._running:
            self._after(0.0, lambda: self._accept(job_id, utterance))
        elif utterance.is_attached:
            self._fail(life, utterance, common_pb2.ERROR_REASON_JOB_NOT_FOUND)
        else:
            self._create(life, utterance)

    def _create(self, life: Life, utterance: Utterance) -> None:
        spec = life.specs.spec(utterance, self._world.now)
        held = self._held.setdefault(utterance.direction.tgt, {})
        way = self._world.choices.pick(12) if self._world.rough else 0
        if way == 11:
            self._fail(life, utterance, common_pb2.ERROR_REASON_NO_CAPABLE_NODE)
            return
        if way == 10:
            self._fail(life, utterance, common_pb2.ERROR_REASON_BACKPRESSURE)
            return
        if not set(spec.held_utterances) <= set(held):
            self._fail(life, utterance, common_pb2.ERROR_REASON_HELD_AUDIO_NEEDED)
            return
        job_id = utterance.job_id
        self.made.add((utterance.index, utterance.direction.tgt))
        self._running.add(job_id)
        self._after(0.0, lambda: self._accept(job_id, utterance))
        if way == 9:
            self._after(20.0, lambda: self._break(utterance, common_pb2.ERROR_REASON_JOB_FAILED))
        else:
            self._after(20.0, lambda: self._finish(utterance, spec))

    def _translated(
        self, spec: dispatcher_pb2.JobSpec, held: dict[int, list[str]]
    ) -> dispatcher_pb2.JobResult:
        """What a node makes of a job: a text, or it holds the audio for the next job."""
        joined = sorted(held) if spec.is_flush else [*spec.held_utterances]
        own = tags(spec.audio)
        said = [tag for index in joined for tag in held.pop(index)] + own
        # What else a node holds belongs to an earlier turn.
        held.clear()
        joined += spec.included_utterances
        may_hold = spec.reason in MAY_CONTINUE and not spec.is_flush
        if may_hold and self._world.rough and self._world.choices.one_in(4):
            for index in joined:
                held[index] = self._speaker.said_in(index)
            included = [tag for index in joined for tag in held[index]]
            held[spec.utterance_index] = [tag for tag in own if tag not in included]
            return dispatcher_pb2.JobResult(kind=HELD)
        texts = dispatcher_pb2.Texts(translated=" ".join(said))
        return dispatcher_pb2.JobResult(kind=TRANSLATED, joined_utterances=joined, texts=texts)

    def lose_held(self) -> None:
        """A node is lost with all that it holds."""
        for held in self._held.values():
            held.clear()

    def _after(self, ms: float, step: Callable[[], None]) -> None:
        self._world.after(ms + self._world.choices.delay(), step)

    def _owner(self, job_id: str) -> Life | None:
        life = self._owners.get(job_id)
        return None if life is None or life.is_dead or life.is_over else life

    def _accept(self, job_id: str, utterance: Utterance) -> None:
        if life := self._owner(job_id):
            accepted = dispatcher_pb2.JobAccepted(node_id="n", attempt=1)
            index, lane = utterance.index, utterance.direction.tgt
            now = self._world.now
            self._speaker.do(life, life.core.on_accepted(now, index, accepted, lane))

    def _finish(self, utterance: Utterance, spec: dispatcher_pb2.JobSpec) -> None:
        job_id, held = utterance.job_id, self._held[utterance.direction.tgt]
        if not set(spec.held_utterances) <= set(held):
            self._break(utterance, common_pb2.ERROR_REASON_HELD_AUDIO_NEEDED)
            return
        self._running.discard(job_id)
        self._results[job_id] = self._translated(spec, held)
        self._deliver(job_id, utterance)

    def _deliver(self, job_id: str, utterance: Utterance) -> None:
        life = self._owner(job_id)
        if life is None or job_id in self.taken:
            return
        delivered = dispatcher_pb2.JobDelivered(result=self._results[job_id], node_id="n")
        index, lane = utterance.index, utterance.direction.tgt
        now = self._world.now
        self._speaker.do(life, life.core.on_delivered(now, index, job_id, delivered, lane))

    def _break(self, utterance: Utterance, why: common_pb2.ErrorReason.ValueType) -> None:
        self._running.discard(utterance.job_id)
        if life := self._owner(utterance.job_id):
            self._fail(life, utterance, why)

    def _fail(
        self, life: Life, utterance: Utterance, reason: common_pb2.ErrorReason.ValueType
    ) -> None:
        def step() -> None:
            if not life.is_dead and not life.is_over:
                index, lane, now = utterance.index, utterance.direction.tgt, self._world.now
                self._speaker.do(life, life.core.on_failed(now, index, error(reason), lane))

        self._world.after(self._world.choices.delay(), step)
