"""Carries out the effects of jobs' machines.

Everything happens on one event loop, in the order of arrival: an event goes into a job's machine,
and `Executor.feed` carries out the resulting effects at once. If an effect asks something of the
pool service, a node or a gateway, the answer is another event later.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any

from lingua_scheduler.services.dispatcher.home.delivery import Delivery
from lingua_scheduler.services.dispatcher.home.job import Job, JobRegistry
from lingua_scheduler.services.dispatcher.home.kept_results import KeptResults
from lingua_scheduler.services.dispatcher.home.leases import Leases
from lingua_scheduler.services.dispatcher.home.orphans import Orphans
from lingua_scheduler.services.dispatcher.home.records import JobRecords
from lingua_scheduler.services.dispatcher.home.reports import NodeReports
from lingua_scheduler.services.dispatcher.job import effects
from lingua_scheduler.services.dispatcher.job.effects import (
    BY_BINDING,
    Attempt,
    AttemptState,
    Effect,
)
from lingua_scheduler.services.dispatcher.job.model import Phase
from lingua_scheduler.services.dispatcher.metrics import DispatcherMetrics
from lingua_scheduler.services.dispatcher.nodes.routes import Routes
from lingua_scheduler.services.dispatcher.nodes.stream import Responsible
from lingua_scheduler.services.dispatcher.pool.client import PoolClient
from lingua_scheduler.services.runtime import errors
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.services.runtime.tasks import BackgroundTasks
from lingua_scheduler.services.runtime.timers import Timers, now_ms
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, pool_pb2

_log = logging.getLogger(__name__)

# How often the pool is asked for the new connection of a lost node.
_LOCATE_EVERY_S = 0.2
# How often a kept result is looked for while Redis cannot be read.
_READ_EVERY_S = 0.2


class Executor:
    """Runs the effects of every job, and feeds the answers back to the machines.

    It sends the orders for nodes itself, and `reports` takes the nodes' answers. `leases` has the
    effects for the pool service, `delivery` those for gateways.

    Args:
        connect: builds the routes to nodes, given who answers for the attempts sent over them.
    """

    def __init__(
        self,
        *,
        settings: Settings,
        registry: JobRegistry,
        pool: PoolClient,
        kept: KeptResults,
        records: JobRecords,
        metrics: DispatcherMetrics,
        connect: Callable[[Responsible], Routes],
    ) -> None:
        self._settings = settings
        self._registry = registry
        self._pool = pool
        self._kept = kept
        self._metrics = metrics
        self._closed = False
        self._tasks = BackgroundTasks()
        self._timers: Timers[str, None] = Timers(on_due=self._on_due, clock=now_ms)
        self.orphans = Orphans(
            kept=kept, settings=settings, metrics=metrics, confirm=self._confirm_to
        )
        self.reports = NodeReports(
            registry=registry,
            feed=self.feed,
            orphans=self.orphans,
            confirm=self._confirm_to,
            metrics=metrics,
        )
        self.routes = connect(self.reports)
        self.leases = Leases(
            settings=settings,
            registry=registry,
            pool=pool,
            routes=self.routes,
            metrics=metrics,
            feed=self.feed,
        )
        self.delivery = Delivery(
            registry=registry,
            kept=kept,
            records=records,
            metrics=metrics,
            routes=self.routes,
            timers=self._timers,
        )
        self._carry_out: dict[type[Effect], Callable[[Job, Any, float], object]] = {
            effects.Allocate: self.leases.allocate,
            effects.Wait: self.leases.wait,
            effects.Commit: self.leases.commit,
            effects.Release: self.leases.release,
            effects.Complete: self.leases.complete,
            effects.Send: self._send,
            effects.CancelOnNode: self._cancel_on_node,
            effects.Confirm: self._confirm,
            effects.Locate: self._locate,
            effects.Wake: self._wake,
            effects.FetchKept: self._fetch_kept,
            effects.Accepted: self.delivery.accepted,
            effects.Retrying: self.delivery.retrying,
            effects.PassPartial: self.delivery.partial,
            effects.Deliver: self._deliver,
            effects.Fail: self._fail,
        }

    def feed(self, job: Job, now: float, todo: Iterable[Effect]) -> None:
        """Carries out the effects of an event of a job."""
        if not self._closed:
            for effect in todo:
                self._carry_out[type(effect)](job, effect, now)

    async def close(self) -> None:
        """Drops everything that is under way, except for results that are being kept."""
        self._closed = True
        self._timers.close()
        await self.delivery.close()
        await self._tasks.cancel()

    # ---- time ----

    def _wake(self, job: Job, effect: effects.Wake, _: float) -> None:
        self._timers.set(job.job_id, None, effect.at_ms)

    def _on_due(self, job_id: str, _: None) -> None:
        job = self._registry.get(job_id)
        if job is None:
            return
        if job.machine.phase is Phase.OVER:
            self.delivery.review(job)
        else:
            now = now_ms()
            self.feed(job, now, job.machine.on_wake(now))

    # ---- orders for nodes ----

    def _send(self, job: Job, effect: effects.Send, now: float) -> None:
        settings, attempt = self._settings, effect.attempt
        left = settings.job_timeout_ms
        if job.deadline_ms is not None:
            left = max(1, min(left, int(job.deadline_ms - now)))
        # Filled in place: a message that is passed to the constructor of another one is serialized
        # and parsed for that, including its audio.
        message = dispatcher_pb2.DispatcherMessage()
        assign = message.events.add().job_assign
        assign.job.CopyFrom(job.spec)
        assign.time_left_ms = left
        assign.ack_within_ms = settings.ack_timeout_ms
        is_apart = job.spec.begins_turn or bool(job.spec.included_utterances)
        assign.begins_turn = is_apart or attempt.placement.path not in BY_BINDING
        assign.attempt.job_id = job.job_id
        assign.attempt.attempt = attempt.number
        _hide_the_session(assign.job, attempt.placement.turn_id or job.job_id)
        if attempt.state is AttemptState.KEPT or attempt.is_result_only:
            assign.only_if_known = True
            assign.job.ClearField("audio")
        if traceparent := job.timeline.traceparent(attempt.number):
            assign.job.traceparent = traceparent
        job.sent_ms[attempt.number] = now
        by_relay = not self.routes.is_here(attempt.placement)
        job.timeline.sends(now, attempt.number, attempt.node_id, by_relay=by_relay)
        self._metrics.dispatch_seconds.observe((now - job.submitted_ms) / 1000)
        self.routes.assign(attempt.placement, message)

    def _cancel_on_node(self, job: Job, effect: effects.CancelOnNode, _: float) -> None:
        ref = job.ref(effect.attempt.number)
        cancel = dispatcher_pb2.JobCancel(attempt=ref, why=effect.why)
        self.routes.cancel(effect.attempt.placement, cancel)

    def _confirm(self, job: Job, effect: effects.Confirm, _: float) -> None:
        self.delivery.confirm(job, effect.node_id, effect.number)

    def _confirm_to(self, node_id: str, attempt: common_pb2.AttemptRef) -> None:
        self.routes.confirm(pool_pb2.Placement(node_id=node_id), attempt)

    def _locate(self, job: Job, effect: effects.Locate, _: float) -> None:
        self._tasks.spawn(self._look_for_node(job, effect.attempt))

    async def _look_for_node(self, job: Job, attempt: Attempt) -> None:
        """Looks for the node's new connection for as long as the job waits for it."""
        request = pool_pb2.GetNodeRequest(node_id=attempt.node_id)
        while job.machine.phase is Phase.LOST:
            await asyncio.sleep(_LOCATE_EVERY_S)
            try:
                node = (await self._pool.get_node(request)).node
            except errors.LinguaError:
                continue
            if node.health == common_pb2.NODE_HEALTH_OFFLINE:
                continue
            # The pool knows about a connection shortly before the node can be reached over it, so
            # the assignment may have been sent too early.
            too_early = job.not_sent.pop(attempt.number, None) is not None
            # Perhaps not the node was disconnected, but the relay to its dispatcher.
            by_relay = not self.routes.is_here(attempt.placement)
            cut_off = by_relay and attempt.number in job.cut_off
            if too_early or cut_off or node.epoch != attempt.placement.node_epoch:
                job.cut_off.discard(attempt.number)
                placement = pool_pb2.Placement(
                    node_id=node.node_id,
                    node_epoch=node.epoch,
                    owner_instance=node.owner_instance,
                    owner_address=node.owner_address,
                    cell=node.cell,
                )
                now = now_ms()
                self.feed(job, now, job.machine.on_node_back(now, attempt.number, placement))

    # ---- results ----

    def _fetch_kept(self, job: Job, effect: effects.FetchKept, _: float) -> None:
        self._tasks.spawn(self._read_kept(job, effect.is_last))

    async def _read_kept(self, job: Job, is_last: bool) -> None:
        result: dispatcher_pb2.JobResult | None = None
        is_told = False
        # The deadline of the job ends this if Redis does not.
        while job.machine.phase is not Phase.OVER:
            try:
                result = await self._kept.fetch(job.job_id)
                break
            except errors.LinguaError as error:
                if not is_told:
                    facts = {"job_id": job.job_id, "reason": str(error)}
                    _log.warning("kept result not readable", extra=facts)
                is_told = True
            if not is_last:
                break
            await asyncio.sleep(_READ_EVERY_S)
        now = now_ms()
        self.feed(job, now, job.machine.on_kept(now, result))

    def _deliver(self, job: Job, effect: effects.Deliver, now: float) -> None:
        if job.waits_since_ms is not None:
            self.leases.leave_queue(job, now - job.waits_since_ms, placed=False)
        self.delivery.deliver(job, effect, now)

    def _fail(self, job: Job, effect: effects.Fail, now: float) -> None:
        if job.waits_since_ms is not None:
            self.leases.leave_queue(job, now - job.waits_since_ms, placed=False)
        self.delivery.fail(job, effect, now)


def _hide_the_session(spec: dispatcher_pb2.JobSpec, turn_id: str) -> None:
    """Removes what would tell a node's owner whose job it is, and which turns belong together."""
    spec.session_id = turn_id
    spec.ClearField("tenant")
    spec.ClearField("limits")
    spec.ClearField("session_epoch")
    spec.ClearField("steps")
    spec.ClearField("first_chunk_client_ms")
