"""Slots for attempts: asked of the pool, committed, and given back; and the queue for them."""

import asyncio
from functools import partial

from lingua_scheduler.services.dispatcher.home.job import Feed, Job, JobRegistry, node_line
from lingua_scheduler.services.dispatcher.home.waiting import WaitingBytes, WaitingRoom
from lingua_scheduler.services.dispatcher.home.waiting_rounds import WaitingRounds
from lingua_scheduler.services.dispatcher.job import effects
from lingua_scheduler.services.dispatcher.job.effects import Attempt, AttemptState, FailureCause
from lingua_scheduler.services.dispatcher.job.model import Phase
from lingua_scheduler.services.dispatcher.job.timeline import cause_name, kind_of, outcome_name
from lingua_scheduler.services.dispatcher.metrics import DispatcherMetrics
from lingua_scheduler.services.dispatcher.nodes.routes import Routes
from lingua_scheduler.services.dispatcher.pool.client import PoolClient
from lingua_scheduler.services.runtime import errors
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.services.runtime.timers import now_ms
from lingua_scheduler.v1 import common_pb2, pool_pb2

# Jobs of one direction that may wait for room; any further job fails at once.
_MAX_WAITING = 10_000
# Waiting jobs ask the pool this often even if nothing suggests that there is room.
_POLL_EVERY_S = 0.1

_Allocation = asyncio.Future[pool_pb2.AllocateResponse]


class Leases:
    """Carries out the effects that concern the pool service, and feeds back its answers.

    Every callback holds on to its job, not to the job's id: a job that was forgotten and begins
    anew is a different one, which no late answer to the old one may touch.
    """

    def __init__(
        self,
        *,
        settings: Settings,
        registry: JobRegistry,
        pool: PoolClient,
        routes: Routes,
        metrics: DispatcherMetrics,
        feed: Feed,
    ) -> None:
        # Getting the running loop is a system call each time.
        self._loop = asyncio.get_running_loop()
        self._settings = settings
        self._pool = pool
        self._routes = routes
        self._metrics = metrics
        self._feed = feed
        self._room = WaitingRoom(max_waiting=_MAX_WAITING)
        metrics.waiting.set_function(lambda: len(self._room))
        self._waiting = WaitingRounds(
            room=self._room,
            job=registry.get,
            ask=self._ask_again,
            audio=WaitingBytes(settings.waiting_bytes_max),
        )

    @property
    def waiting(self) -> int:
        """The number of jobs that wait for room."""
        return len(self._room)

    # ---- asking for a slot ----

    def is_behind(self, job: Job) -> bool:
        """Whether a new job has to queue behind others that wait for the same nodes."""
        # A job that needs what a node holds can go only to that node, and is next in line there.
        return self._room.must_wait(job.queue) and not job.spec.held_utterances

    def has_come(self, job: Job) -> None:
        """A new job is behind others, which may wait for something that it does not need."""
        self._waiting.has_come(job)

    def allocate(self, job: Job, effect: effects.Allocate, now: float) -> None:
        """Asks the pool for a node."""
        if job.is_behind:
            # Others came first and wait for the same nodes: there is no need to ask.
            job.is_behind = False
            behind = FailureCause(
                common_pb2.ERROR_REASON_ALL_CANDIDATES_FULL_OR_FAILED,
                "other jobs already wait for room",
            )
            self._feed(job, now, job.machine.on_refused(now, behind))
        else:
            job.is_asking = True
            self._ask(job, effect, now)

    def _ask(self, job: Job, effect: effects.Allocate, now: float) -> None:
        spec, settings = job.spec, self._settings
        request = pool_pb2.AllocateRequest(
            job_id=job.job_id,
            attempt=effect.number,
            job_key=job.key,
            tenant=spec.tenant,
            session_id=job.session_id,
            utterance_index=job.utterance_index,
            # The epoch decides who may begin a job. One that has begun goes on in any case.
            session_epoch=0 if job.has_begun else job.epoch,
            reason=spec.reason,
            wait_for_bound_node=effect.wait_for_bound_node,
            home_instance=settings.instance_id,
            audio_ms=spec.audio_ms,
        )
        if spec.HasField("limits"):
            request.limits.CopyFrom(spec.limits)
        criteria, pair = request.criteria, spec.pair
        criteria.pair.src, criteria.pair.tgt = pair.src, pair.tgt
        criteria.require_tts, criteria.strict = spec.require_tts, spec.strict
        if spec.required_stages:
            criteria.required_stages.extend(spec.required_stages)
        if effect.exclude:
            criteria.exclude_node_ids.extend(job.excluded(effect))
        if spec.preferred_node_id:
            criteria.preferred_node_id = job.preferred(effect)
        criteria.local_instance = settings.instance_id
        is_hedge = job.machine.phase is Phase.PLACED
        traceparent = job.timeline.asks(now, effect.number, hedge=is_hedge)
        try:
            answer = self._pool.allocate(request, traceparent)
        except errors.LinguaError as error:
            # Not now: the caller is in the middle of carrying out effects.
            self._loop.call_soon(self._refused, job, effect, error)
        else:
            epoch = request.session_epoch
            answer.add_done_callback(partial(self._allocated, job, effect, epoch))

    def _allocated(
        self, job: Job, effect: effects.Allocate, epoch: int, answered: _Allocation
    ) -> None:
        if answered.cancelled():
            return
        error = answered.exception()
        if isinstance(error, errors.SessionTakenOverError) and 0 < epoch < job.epoch:
            # Since the question, the gateway that took the session over has taken the job up.
            self._ask(job, effect, now_ms())
            return
        if isinstance(error, errors.LinguaError):
            self._refused(job, effect, error)
            return
        answer, now = answered.result(), now_ms()
        job.is_asking = False
        job.is_taken_up = job.is_taken_up or (answer.existing and not job.has_begun)
        job.has_begun = True
        if answer.attempt.attempt:  # 0: the job had ended without a node
            self._metrics.placed(answer.placement, self._settings.instance_id)
            job.timeline.placed(now, answer.attempt.attempt, answer.placement.node_id)
        if job.waits_since_ms is not None:
            self.leave_queue(job, now - job.waits_since_ms, placed=True)
        job.is_over_quota, job.turn_node = False, ""
        self._feed(job, now, job.machine.on_allocated(now, answer))
        self._waiting.has_answer(job)

    def _refused(self, job: Job, effect: effects.Allocate, error: errors.LinguaError) -> None:
        spec, now = job.spec, now_ms()
        job.is_asking = False
        job.timeline.refused(now, errors.reason_name(error.reason))
        job.is_over_quota = error.reason == common_pb2.ERROR_REASON_QUOTA_EXCEEDED
        waits_for_turn = error.reason == common_pb2.ERROR_REASON_BOUND_NODE_FULL
        job.turn_node = error.metadata.get("node_id", "") if waits_for_turn else ""
        cause = FailureCause(error.reason, error.message, error.retry_after_ms, error.metadata)
        job.is_particular = not (job.is_over_quota or waits_for_turn) and bool(
            effect.exclude or spec.strict or spec.required_stages
        )
        self._feed(job, now, job.machine.on_refused(now, cause))
        self._waiting.has_answer(job)

    # ---- waiting for room ----

    def wait(self, job: Job, effect: effects.Wait, now: float) -> None:
        """Queues a job for room."""
        job.others_line = job.line_besides(effect.besides)
        if job.others_line:
            job.is_particular = False
        if not job.is_over_quota:
            self._metrics.waits.inc()
        job.timeline.waits(now, max(job.machine.attempts, default=0) + 1)
        if job.waits_since_ms is None:
            job.waits_since_ms = now
        if not self._waiting.wait(job):
            # The queue is full: for this job the wait is over.
            self._loop.call_soon(self._no_place, job)

    def _no_place(self, job: Job) -> None:
        now = now_ms()
        self._feed(job, now, job.machine.on_no_place(now))

    def leave_queue(self, job: Job, waited_ms: float, *, placed: bool) -> None:
        """Takes a job that has waited out of the queue."""
        self._waiting.leave(job)
        job.waits_since_ms = None
        # More nodes would not have helped a job over its quota.
        if not job.is_over_quota:
            self._metrics.waited(waited_ms / 1000, placed=placed)

    def _ask_again(self, job: Job) -> None:
        now = now_ms()
        self._feed(job, now, job.machine.on_room(now))

    def on_room(self, serves: frozenset[str]) -> None:
        """A node has connected that is in these pools: the first waiting job asks."""
        self._waiting.room_for(serves)
        self._waiting.node_for(serves)

    async def poll(self) -> None:
        """Lets waiting jobs ask now and then, until cancelled."""
        while True:
            await asyncio.sleep(_POLL_EVERY_S)
            self._waiting.poll()

    # ---- committing a slot, and giving it back ----

    def commit(self, job: Job, effect: effects.Commit, _: float) -> None:
        """Turns a reservation into a running lease."""
        # Soon, not now: if a node acknowledges and finishes in one message, one operation suffices.
        self._loop.call_soon(self._commit, job, effect.attempt)

    def _commit(self, job: Job, attempt: Attempt) -> None:
        if attempt.state is not AttemptState.ACKED:
            return  # Complete or Release has ended the attempt
        number = attempt.number
        request = pool_pb2.CommitRequest(
            attempt=job.ref(number), node_id=attempt.node_id, cell=attempt.placement.cell
        )
        # Not urgent, unless the assignment is sent again only after the answer.
        is_patient = job.machine.phase is not Phase.LOST
        self._pool.persistently(
            "commit",
            request,
            self._settings.reservation_ttl_ms,
            partial(self._committed, job, number),
            job.timeline.traceparent(number),
            patient=is_patient,
        )

    def _committed(self, job: Job, number: int, answer: pool_pb2.CommitResponse | None) -> None:
        if answer is not None:
            already = answer.outcome == pool_pb2.CommitResponse.OUTCOME_ALREADY
            is_over = already and answer.lease_ends_ms == 0
            now = now_ms()
            todo = job.machine.on_committed(now, number, answer.outcome, is_over=is_over)
            self._feed(job, now, todo)

    def release(self, job: Job, effect: effects.Release, now: float) -> None:
        """Gives a reservation back."""
        if effect.cause == pool_pb2.RELEASE_CAUSE_ACK_TIMEOUT:
            self._metrics.ack_timeouts.inc()
        number, timeline = effect.attempt.number, job.timeline
        request = pool_pb2.ReleaseRequest(
            attempt=job.ref(number),
            node_id=effect.attempt.node_id,
            cause=effect.cause,
            final_state=effect.final,
            detail=effect.detail,
            cell=effect.attempt.placement.cell,
        )
        timeline.ends(now, number, cause_name(effect.cause))
        self._pool.persistently(
            "release",
            request,
            self._settings.reservation_ttl_ms,
            partial(self._slot_freed, job, effect.attempt),
            timeline.traceparent(number),
            patient=self._room.is_empty,
        )

    def complete(self, job: Job, effect: effects.Complete, now: float) -> None:
        """Ends a running lease."""
        number, timeline = effect.attempt.number, job.timeline
        request = pool_pb2.CompleteRequest(
            node_id=effect.attempt.node_id,
            outcome=effect.outcome,
            detail=effect.detail,
            final_state=effect.final,
            job_at_fault=effect.job_at_fault,
            cell=effect.attempt.placement.cell,
        )
        if self._settings.cells > 1 and job.spec.limits.jobs:
            request.tenant = job.spec.tenant
        request.attempt.job_id, request.attempt.attempt = job.job_id, number
        if effect.result is not None:
            request.result_kind = kind_of(effect.result)
            timeline.won(effect.result, turn_broken=job.has_left_its_turn)
            request.steps = timeline.record(now)
        else:
            timeline.ends(now, number, outcome_name(effect.outcome))
        self._pool.persistently(
            "complete",
            request,
            self._settings.running_lease_ms,
            partial(self._slot_freed, job, effect.attempt),
            timeline.traceparent(number),
            patient=self._room.is_empty,
        )

    def _slot_freed(self, job: Job, attempt: Attempt, _: object) -> None:
        """The pool has confirmed it: only now can waiting jobs get the slot."""
        if self._room.is_empty:
            return
        # Jobs whose turn is on that node come first: the pool reserves the slot for them.
        self._waiting.room_in([node_line(attempt.node_id)])
        self._waiting.room_for(self._routes.serves(attempt.node_id) | {job.queue})
        if job.spec.limits.jobs:
            self._waiting.room_in([job.tenant_line])
