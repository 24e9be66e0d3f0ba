"""The Submit streams of gateways: their jobs come in, events go out."""

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import grpc

from lingua_scheduler.services.dispatcher.gateways.followed_jobs import FollowedJobs
from lingua_scheduler.services.dispatcher.home.job import JobRegistry
from lingua_scheduler.services.dispatcher.home.submissions import Submissions
from lingua_scheduler.services.dispatcher.metrics import DispatcherMetrics
from lingua_scheduler.services.dispatcher.validate import check_job
from lingua_scheduler.services.dispatcher.views import JobViews
from lingua_scheduler.services.runtime import errors
from lingua_scheduler.services.runtime.contract import limits
from lingua_scheduler.services.runtime.contract.job_ids import job_id, job_key
from lingua_scheduler.services.runtime.fairness import should_yield
from lingua_scheduler.services.runtime.rpc.duplex import run_duplex
from lingua_scheduler.services.runtime.rpc.message_sizes import batch_bytes, between_services
from lingua_scheduler.services.runtime.rpc.outbox import Outbox
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2

_log = logging.getLogger(__name__)

# Limits of what may wait for a gateway that reads slowly. Partials are dropped first. If even
# results do not fit, the stream ends, and results that were not taken are kept for the next one.
_MAX_EVENTS = 20_000
_MAX_BYTES = 128 * 1024 * 1024
# A stream that ends may write the rest within this time; a gateway may have stopped reading.
_FLUSH_S = 1.0
# How often a drain looks for jobs that another dispatcher has taken up, and for how many at once.
_LOOK_EVERY_S = 0.25
_LOOKS_AT_ONCE = 64

# Stands in the outbox for the answer to an empty request.
_ALIVE = b""

Context = grpc.aio.ServicerContext[Any, Any]


class GatewayStream:
    """One gateway's stream.

    Args:
        metrics: count what does not fit.
        max_message_bytes: the most that a message may have.
        gateways: tells how many there are, for the answers to empty requests.
    """

    def __init__(
        self,
        metrics: DispatcherMetrics,
        max_message_bytes: int,
        gateways: Callable[[], int] = lambda: 1,
    ) -> None:
        self._metrics = metrics
        self._gateways = gateways
        self._largest = between_services(max_message_bytes)
        # Serialized responses. Concatenated protobuf messages merge: repeated fields append.
        self.outbox: Outbox[bytes] = Outbox(
            max_events=_MAX_EVENTS,
            max_bytes=_MAX_BYTES,
            max_take_bytes=batch_bytes(max_message_bytes),
        )
        # Set: the stream ends at once, whatever is left to write.
        self.cut = asyncio.Event()
        # Answers in the outbox to empty requests. Some may have been dropped since.
        self._answers = 0

    def put(self, event: dispatcher_pb2.JobEvent, *, droppable: bool = False) -> bool:
        """Queues an event for the gateway; False: it is gone or does not read."""
        # Only the last partial of a job counts.
        replaces = event.job_id if droppable else None
        response = dispatcher_pb2.SubmitResponse()
        response.events.add().CopyFrom(event)
        data = response.SerializeToString()
        if len(data) > self._largest:
            return droppable or self.put(self._too_large(event, len(data)))
        fits = self.outbox.put(data, len(data), droppable=droppable, replaces=replaces)
        if not fits and not droppable and not self.outbox.closed:
            self._metrics.backpressure.labels("gateway").inc()
            self.end()
        return fits

    def _too_large(self, event: dispatcher_pb2.JobEvent, size: int) -> dispatcher_pb2.JobEvent:
        """The failure sent instead of an event too large for a message: jobs share the stream."""
        self._metrics.too_large.labels("gateway").inc()
        why = f"an event of the job has {size} bytes; a message has at most {self._largest}"
        return dispatcher_pb2.JobEvent(
            job_id=event.job_id,
            session_id=event.session_id,
            utterance_index=event.utterance_index,
            failed=common_pb2.Error(reason=common_pb2.ERROR_REASON_JOB_FAILED, message=why),
        )

    def answer(self) -> None:
        """Queues the answer to an empty request."""
        # A gateway that does not read gets none: it is about to lose the stream anyway.
        self._answers += self.outbox.put(_ALIVE, 0, droppable=True)

    def responses(self, taken: list[bytes]) -> Iterable[bytes]:
        """The messages for what was taken from the outbox: usually one."""
        events = b"".join(taken)
        if not self._answers:
            return (events,)
        answers = taken.count(_ALIVE)
        self._answers -= answers
        alive = dispatcher_pb2.SubmitResponse(gateways=self._gateways()).SerializeToString()
        return ([events] if events else []) + [alive] * answers

    @property
    def has_room(self) -> bool:
        """Whether the outbox has room for results that are not urgent."""
        return self.outbox.bytes < _MAX_BYTES // 4

    def end(self) -> None:
        """Ends the stream once everything queued is written, or after a short time."""
        self.outbox.close()
        asyncio.get_running_loop().call_later(_FLUSH_S, self.cut.set)


class GatewayStreams:
    """Serves Submit."""

    def __init__(
        self,
        *,
        registry: JobRegistry,
        submissions: Submissions,
        followed: FollowedJobs,
        views: JobViews,
        metrics: DispatcherMetrics,
        max_message_bytes: int,
    ) -> None:
        self._views = views
        self._registry = registry
        self._submissions = submissions
        self._followed = followed
        self._metrics = metrics
        self._max_message_bytes = max_message_bytes
        self._open: set[GatewayStream] = set()
        self._is_drained = False

    async def submit(
        self, requests: AsyncIterator[dispatcher_pb2.SubmitRequest], context: Context
    ) -> None:
        """Serves one gateway until its stream ends."""
        gateway = GatewayStream(self._metrics, self._max_message_bytes, self._open.__len__)
        self._open.add(gateway)
        if self._is_drained:
            gateway.end()

        async def write() -> None:
            while taken := await gateway.outbox.take():
                for response in gateway.responses(taken):
                    await context.write(response)

        async def read() -> None:
            async for request in requests:
                if not request.submissions:
                    gateway.answer()
                for at, submission in enumerate(request.submissions):
                    if should_yield(at):
                        await asyncio.sleep(0)
                    self._take(gateway, submission)

        try:
            await run_duplex(read=read(), write=write(), cut=gateway.cut)
        finally:
            self._open.discard(gateway)
            gateway.outbox.close()
            self._followed.detach(gateway)
            self._submissions.detach(gateway)

    def _take(self, gateway: GatewayStream, submission: dispatcher_pb2.Submission) -> None:
        match submission.WhichOneof("submission"):
            case "job":
                self._take_job(gateway, submission.job)
            case "attach":
                self._attach(gateway, submission.attach)
            case "cancel" | "taken" | "leave" if found := limits.violations(submission):
                field, reason = found[0]
                facts = {"field": field, "reason": reason}
                _log.warning("invalid submission from a gateway", extra=facts)
            case "cancel":
                self._followed.stop(submission.cancel.job_id, gateway)
                cancel = submission.cancel
                self._submissions.cancel(cancel.job_id, cancel.why, gateway)
            case "taken":
                self._followed.stop(submission.taken.job_id, gateway)
                taken = submission.taken
                self._submissions.taken(taken.job_id, gateway, taken.delivered_after_us)
            case "leave":
                self._followed.stop(submission.leave.job_id, gateway)
                self._submissions.leave(submission.leave.job_id, gateway)

    def _take_job(self, gateway: GatewayStream, spec: dispatcher_pb2.JobSpec) -> None:
        key = job_key(spec)
        id_ = job_id(key, spec.session_id)
        try:
            check_job(spec)
            self._followed.check_epoch(id_, spec.session_epoch)
            self._submissions.submit(spec, gateway, key=key, job_id=id_)
        except errors.LinguaError as error:
            self._refuse(gateway, id_, spec, error)
            return
        # This instance is its home now.
        self._followed.stop(id_)

    def _attach(self, gateway: GatewayStream, attach: dispatcher_pb2.AttachJob) -> None:
        id_, epoch = attach.job_id, attach.session_epoch
        try:
            limits.check(attach, "attach.")
            if self._submissions.attach(id_, gateway, epoch):
                self._followed.stop(id_)
            else:
                self._followed.follow(id_, gateway, epoch)
        except errors.LinguaError as error:
            known = self._registry.get(id_)
            spec = known.spec if known is not None else dispatcher_pb2.JobSpec()
            self._refuse(gateway, id_, spec, error)

    @staticmethod
    def _refuse(
        gateway: GatewayStream, job: str, spec: dispatcher_pb2.JobSpec, error: errors.LinguaError
    ) -> None:
        gateway.put(
            dispatcher_pb2.JobEvent(
                job_id=job,
                session_id=spec.session_id,
                utterance_index=spec.utterance_index,
                failed=errors.to_proto(error),
            )
        )

    async def drain(self) -> None:
        """Begins no new job, waits until those under way are over, then ends the streams.

        A job whose gateway has left may have another home by now, because the next gateway of its
        session submitted it elsewhere. Such a job is not waited for: its end is not reported here.
        """
        self._submissions.is_draining = True
        elsewhere: set[str] = set()
        while not self._registry.idle.is_set():
            under_way = [job for job in self._registry if not job.is_settled]
            left = {job.job_id for job in under_way if job.gateway is None}
            elsewhere |= await self._taken_up(left - elsewhere)
            if all(job.job_id in elsewhere for job in under_way):
                break
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_EVERY_S):
                    await self._registry.idle.wait()
        self._is_drained = True
        for gateway in self._open:
            gateway.end()

    async def _taken_up(self, job_ids: set[str]) -> set[str]:
        """Looks at some of these jobs; returns those that have another home."""
        some = random.sample(sorted(job_ids), min(len(job_ids), _LOOKS_AT_ONCE))
        answers = await asyncio.gather(
            *(self._views.is_elsewhere(job_id) for job_id in some), return_exceptions=True
        )
        return {job_id for job_id, answer in zip(some, answers, strict=True) if answer is True}
