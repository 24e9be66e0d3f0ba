"""The Submit side of the dispatcher: gateways' jobs in, their events out."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from typing import Any

import grpc

from lingua_scheduler.services.dispatcher.gateways.followed_jobs import FollowedJobs
from lingua_scheduler.services.dispatcher.home.jobs import Jobs
from lingua_scheduler.services.dispatcher.metrics import DispatcherMetrics
from lingua_scheduler.services.dispatcher.validate import check_job
from lingua_scheduler.services.runtime import errors
from lingua_scheduler.services.runtime.contract import limits
from lingua_scheduler.services.runtime.contract.job_ids import job_id, job_key
from lingua_scheduler.services.runtime.give_way import is_turn_of_others
from lingua_scheduler.services.runtime.rpc.duplex import run_duplex
from lingua_scheduler.services.runtime.rpc.message_sizes import batch_bytes, between_services
from lingua_scheduler.services.runtime.rpc.outbox import Outbox
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2

_log = logging.getLogger(__name__)

# What may wait for a gateway that reads slowly. Partials go first; when even results do not fit,
# the stream ends, and what it had not taken is kept for the next one.
_MAX_EVENTS = 20_000
_MAX_BYTES = 128 * 1024 * 1024
# What a stream that is to end has to write the rest; a gateway that does not read never would.
_FLUSH_S = 1.0

# An empty response, serialized.
_SOMEBODY_IS_HERE = b""

Context = grpc.aio.ServicerContext[Any, Any]


class GatewayStream:
    """One gateway's stream."""

    def __init__(self, metrics: DispatcherMetrics, max_message_bytes: int) -> None:
        self._metrics = metrics
        self._largest = between_services(max_message_bytes)
        # Responses, serialized. One after the other they are one.
        self.outbox: Outbox[bytes] = Outbox(
            max_events=_MAX_EVENTS,
            max_bytes=_MAX_BYTES,
            max_take_bytes=batch_bytes(max_message_bytes),
        )
        # Set: the stream ends, whatever is left to write.
        self.cut = asyncio.Event()
        # Empty requests that were not answered yet; or never will be, where room was needed.
        self._answers = 0

    def put(self, event: dispatcher_pb2.JobEvent, *, droppable: bool = False) -> bool:
        """Queues an event for the gateway; False where it is gone or does not read."""
        # Of a job's partials only the last counts.
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
        """What is said instead of an event that no message can hold: others share the stream."""
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
        # Who does not read gets none: it is about to lose the stream anyway.
        self._answers += self.outbox.put(_SOMEBODY_IS_HERE, 0, droppable=True)

    def responses(self, taken: list[bytes]) -> Iterable[bytes]:
        """What was taken from the outbox, as messages: mostly one."""
        told = b"".join(taken)
        if not self._answers:
            return (told,)
        answers = taken.count(_SOMEBODY_IS_HERE)
        self._answers -= answers
        return ([told] if told else []) + [_SOMEBODY_IS_HERE] * answers

    @property
    def has_room(self) -> bool:
        """Whether what waits leaves room for results that can as well come later."""
        return self.outbox.bytes < _MAX_BYTES // 4

    def end(self) -> None:
        """Ends the stream after what is queued, and soon in any case."""
        self.outbox.close()
        asyncio.get_running_loop().call_later(_FLUSH_S, self.cut.set)


class GatewayStreams:
    """Serves Submit."""

    def __init__(
        self,
        *,
        jobs: Jobs,
        followed: FollowedJobs,
        metrics: DispatcherMetrics,
        max_message_bytes: int,
    ) -> None:
        self._jobs = jobs
        self._followed = followed
        self._metrics = metrics
        self._max_message_bytes = max_message_bytes
        self._open: set[GatewayStream] = set()
        self._is_over = False

    async def submit(
        self, requests: AsyncIterator[dispatcher_pb2.SubmitRequest], context: Context
    ) -> None:
        """Serves one gateway until its stream ends."""
        gateway = GatewayStream(self._metrics, self._max_message_bytes)
        self._open.add(gateway)
        if self._is_over:
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
                    if is_turn_of_others(at):
                        await asyncio.sleep(0)
                    self._take(gateway, submission)

        try:
            await run_duplex(read=read(), write=write(), cut=gateway.cut)
        finally:
            self._open.discard(gateway)
            gateway.outbox.close()
            self._followed.detach(gateway)
            self._jobs.detach(gateway)

    def _take(self, gateway: GatewayStream, submission: dispatcher_pb2.Submission) -> None:
        match submission.WhichOneof("submission"):
            case "job":
                self._take_job(gateway, submission.job)
            case "attach":
                self._attach(gateway, submission.attach)
            case "cancel" | "taken" | "leave" if found := limits.problems(submission):
                _log.warning("a gateway broke the contract: %s: %s", *found[0])
            case "cancel":
                self._followed.stop(submission.cancel.job_id, gateway)
                self._jobs.cancel(submission.cancel.job_id, submission.cancel.why, gateway)
            case "taken":
                self._followed.stop(submission.taken.job_id, gateway)
                taken = submission.taken
                self._jobs.taken(taken.job_id, gateway, taken.delivered_after_us)
            case "leave":
                self._followed.stop(submission.leave.job_id, gateway)
                self._jobs.leave(submission.leave.job_id, gateway)

    def _take_job(self, gateway: GatewayStream, spec: dispatcher_pb2.JobSpec) -> None:
        key = job_key(spec)
        wanted = job_id(key)
        try:
            check_job(spec)
            self._followed.check_epoch(wanted, spec.session_epoch)
            self._jobs.submit(spec, gateway, key=key, wanted=wanted)
        except errors.LinguaError as error:
            self._refuse(gateway, wanted, spec, error)
            return
        # This instance is its home now.
        self._followed.stop(wanted)

    def _attach(self, gateway: GatewayStream, attach: dispatcher_pb2.AttachJob) -> None:
        wanted, epoch = attach.job_id, attach.session_epoch
        try:
            limits.check(attach, "attach.")
            if self._jobs.attach(wanted, gateway, epoch):
                self._followed.stop(wanted)
            else:
                self._followed.follow(wanted, gateway, epoch)
        except errors.LinguaError as error:
            known = self._jobs.get(wanted)
            spec = known.spec if known is not None else dispatcher_pb2.JobSpec()
            self._refuse(gateway, wanted, spec, error)

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
        """Begins no new job, waits until those under way are over, then ends the streams."""
        self._jobs.is_draining = True
        await self._jobs.idle.wait()
        self._is_over = True
        for gateway in self._open:
            gateway.end()
