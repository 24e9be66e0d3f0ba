"""Dispatchers and nodes in the world of a session: jobs by id, and the audio that nodes hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lingua_scheduler.services.session_gateway.session import effects as fx
from lingua_scheduler.services.session_gateway.session.speech import MAY_CONTINUE
from lingua_scheduler.services.session_gateway.session.utterance import Utterance
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2
from tests.unit.gateway.session_world.model import Job, Life, Message

if TYPE_CHECKING:
    from tests.unit.gateway.session_world.world import World

DOWN = common_pb2.ERROR_REASON_SCHEDULER_DEPENDENCY_DOWN
FULL = common_pb2.ERROR_REASON_ALL_CANDIDATES_FULL_OR_FAILED
QUOTA = common_pb2.ERROR_REASON_QUOTA_EXCEEDED
FAILED = common_pb2.ERROR_REASON_JOB_FAILED
CANCELLED = common_pb2.ERROR_REASON_JOB_CANCELLED
NOT_FOUND = common_pb2.ERROR_REASON_JOB_NOT_FOUND
HELD_AUDIO_NEEDED = common_pb2.ERROR_REASON_HELD_AUDIO_NEEDED
TAKEN_OVER = common_pb2.ERROR_REASON_SESSION_TAKEN_OVER


class Dispatcher:
    """All dispatchers and nodes as one."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.jobs: dict[str, Job] = {}
        # What nodes hold, by direction: an utterance, and all that is in its audio.
        self.held: dict[tuple[str, str], dict[int, set[int]]] = {}
        # Directions whose next job goes to the node that holds audio.
        self.bound: set[tuple[str, str]] = set()
        # Utterances whose jobs were given back. Earlier events about them may arrive late.
        self.given_back: set[int] = set()
        # Utterances whose job a dispatcher lost: with the epoch of the gateway that still has the
        # audio, or 0.
        self.lost: dict[int, int] = {}

    def has_dropped(self, index: int) -> bool:
        """Whether the job of an utterance was lost or given back."""
        return index in self.lost or index in self.given_back

    def submit(self, life: Life, utterance: Utterance) -> None:
        index, job_id = utterance.index, utterance.job_id
        if not utterance.is_attached:
            self._world.check_job(life, utterance)
        if life.epoch == self._world.store.epoch:
            self._world.check_turn(life, utterance)
        again = " again" if utterance.is_resumed else ""
        self._world.seen["attach" if utterance.is_attached else f"submit{again}"] += 1
        job = self.jobs.get(job_id)
        if life.epoch < self._world.store.epoch:
            self._world.seen["submit of an old epoch"] += 1
            self._failed(life, index, TAKEN_OVER)
        elif self._world.rough:
            # It never came there; or the stream breaks, and twice is told what is lost.
            for _ in range(1 + self._world.choices.one_in(3)):
                self._failed(life, index, (DOWN, FULL, QUOTA)[self._world.choices.pick(3)])
        elif job is None and utterance.is_attached:
            self._failed(life, index, NOT_FOUND)
        elif job is not None and job.state == "given back" and utterance.is_attached:
            # Nobody has what it needs, so it is done without.
            job.state, job.needs, job.subscriber = "running", (), life
            self._begin(job)
        elif job is None or job.state == "given back":
            is_held = utterance.reason in MAY_CONTINUE and int(job_id[:2], 16) < 100
            job = self.jobs[job_id] = Job(
                index,
                job_id,
                life,
                is_held,
                pair=(utterance.direction.src, utterance.direction.tgt),
                needs=utterance.held,
                brings=utterance.included,
            )
            job.is_bound = job.pair in self.bound
            self.bound.discard(job.pair)
            self._world.seen["held audio brought along"] += bool(utterance.included)
            self._world.seen["rest"] += utterance.is_flush
            self._begin(job)
        else:
            self._world.seen[f"found {job.state}"] += 1
            job.subscriber = life
            if utterance.is_attached:
                # Nobody can bring what it needs, so it is done without if it has to be.
                job.needs = ()
            self._answer(job)

    def _answer(self, job: Job) -> None:
        """Whoever asks for a job hears how it is."""
        life = job.subscriber
        if life is None:
            return
        if job.state == "done" and not job.forgotten:
            for _ in range(
                1 + (self._world.benign_since is None and self._world.choices.one_in(6))
            ):
                self._deliver(life, job)
        elif job.state == "running":
            if job.accepted:
                self._accept(life, job)
        else:
            why = {
                "failed": FAILED,
                "cancelled": CANCELLED,
                "done": NOT_FOUND,
                "given back": HELD_AUDIO_NEEDED,
            }[job.state]
            self._failed(life, job.index, why)

    def _begin(self, job: Job) -> None:
        way = self._world.choices.pick(6) if self._world.rough else 0
        if way == 1:
            return  # it hangs
        accepts = self._world.delay()
        self._world.after(accepts, lambda: self._accepted(job))
        if way == 2:
            self._world.after(accepts + self._world.delay(), lambda: self._fail(job))
        elif way == 3:
            self._world.after(self._world.delay(), lambda: self._lose(job))
        else:
            self._world.after(accepts + self._world.delay(), lambda: self.finish(job))
        if way == 4:
            self._world.after(self._world.delay(), lambda: self._show(job))

    def _accepted(self, job: Job) -> None:
        if job.state == "running" and self.jobs.get(job.job_id) is job:
            job.accepted = True
            self._answer(job)

    def finish(self, job: Job) -> None:
        if job.state != "running" or self.jobs.get(job.job_id) is not job:
            return
        holds = self.held.setdefault(job.pair, {})
        earlier = set(job.brings)
        if job.is_bound and not job.brings:
            earlier |= {each for index in holds if index < job.index for each in holds[index]}
        if not earlier.issuperset(job.needs):
            job.state, job.accepted = "given back", True
            self.given_back.add(job.index)
            self._world.seen["held audio needed"] += 1
            if job.subscriber is not None:
                self._failed(job.subscriber, job.index, HELD_AUDIO_NEEDED)
            return
        job.state, job.accepted = "done", True
        for index in [index for index in holds if index < job.index]:
            del holds[index]
        if job.is_held:
            holds[job.index] = earlier | {job.index}
            self.bound.add(job.pair)
        else:
            job.joined = tuple(sorted(earlier))
        self._answer(job)

    def lose_node(self) -> None:
        """The nodes that hold audio die."""
        self._world.seen["node lost"] += any(self.held.values())
        self._world.note("the nodes that hold audio are lost")
        self.held.clear()

    def _fail(self, job: Job) -> None:
        if job.state == "running" and self.jobs.get(job.job_id) is job:
            job.state = "failed"
            self._answer(job)

    def _lose(self, job: Job) -> None:
        """Its dispatcher dies."""
        if job.state == "running" and self.jobs.get(job.job_id) is job:
            del self.jobs[job.job_id]
            self._world.seen["job lost"] += 1
            self.lost[job.index] = (
                self._world.life.epoch if job.subscriber is self._world.life else 0
            )
            if job.subscriber is not None:
                self._failed(job.subscriber, job.index, DOWN)

    def _show(self, job: Job) -> None:
        """Events for the app's display, at any time."""
        life = job.subscriber
        if life is not None and not life.is_dead:
            why = common_pb2.Error(reason=FAILED)
            retrying = dispatcher_pb2.JobRetrying(attempt=1, why=why)
            partial = dispatcher_pb2.JobPartial()
            now, index = self._world.now, job.index
            self._world.tell(
                life, "retrying", lambda life: life.core.on_retrying(now, index, retrying)
            )
            self._world.tell(
                life, "partial", lambda life: life.core.on_partial(now, index, partial)
            )

    def _accept(self, life: Life, job: Job) -> None:
        accepted = dispatcher_pb2.JobAccepted(node_id="n", attempt=1)
        self._post(
            life,
            "accepted",
            lambda life: life.core.on_accepted(self._world.now, job.index, accepted),
        )

    def _deliver(self, life: Life, job: Job) -> None:
        kinds = dispatcher_pb2.JobResult
        kind = kinds.KIND_HELD if job.is_held else kinds.KIND_TRANSLATED
        result = dispatcher_pb2.JobResult(kind=kind, joined_utterances=job.joined)
        delivered = dispatcher_pb2.JobDelivered(result=result, node_id="n", attempts=1)

        def tell(life: Life) -> list[fx.Effect]:
            life.over.add(job.index)
            return life.core.on_delivered(self._world.now, job.index, job.job_id, delivered)

        self._post(life, f"delivered {job.index}", tell)

    def _failed(self, life: Life, index: int, reason: common_pb2.ErrorReason.ValueType) -> None:
        why = common_pb2.Error(reason=reason, message="why")

        def tell(life: Life) -> list[fx.Effect]:
            if reason not in (DOWN, FULL, QUOTA, TAKEN_OVER, HELD_AUDIO_NEEDED):
                life.over.add(index)
                self._world.declared.add(index)
            return life.core.on_failed(self._world.now, index, why)

        self._post(life, f"failed {index}", tell)

    def _post(self, life: Life, what: str, event: Message) -> None:
        def arrive() -> None:
            if not life.is_dead:
                self._world.tell(life, what, event)

        self._world.after(self._world.delay(), arrive)

    def cancel(self, life: Life, job_id: str) -> None:
        """A gateway's word counts as long as no other gateway has the job."""
        self._world.seen["cancel"] += 1
        job = self.jobs.get(job_id)
        if job is not None and job.state == "running" and job.subscriber in (None, life):
            job.state = "cancelled"
            self._answer(job)

    def taken(self, job_id: str) -> None:
        job = self.jobs.get(job_id)
        if job is not None:
            known = job.index < self._world.client.seen or job.index in self._world.declared
            assert known, f"the result of {job.index} is let go, and nobody has seen it"
            self._world.seen["taken"] += 1
            job.forgotten = True
