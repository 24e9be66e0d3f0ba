"""The Submit side of the dispatcher: gateways' jobs in, their events out."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import grpc

from lingua_scheduler.services.dispatcher.dispatcher_metrics import DispatcherMetrics
from lingua_scheduler.services.dispatcher.jobs import Jobs
from lingua_scheduler.services.dispatcher.kept_results import KeptResults
from lingua_scheduler.services.dispatcher.validate import check_job
from lingua_scheduler.services.runtime import errors
from lingua_scheduler.services.runtime.job_ids import job_id, job_key
from lingua_scheduler.services.runtime.outbox import Outbox
from lingua_scheduler.v1 import dispatcher_pb2

_log = logging.getLogger(__name__)

# What may wait for a gateway that reads slowly. Partials go first; when even results do not fit,
# the stream ends, and what it had not taken is kept for the next one.
_MAX_EVENTS = 20_000
_MAX_BYTES = 128 * 1024 * 1024
# What a stream that is to end has to write the rest; a gateway that does not read never would.
_FLUSH_S = 1.0

Context = grpc.aio.ServicerContext[Any, Any]


class GatewayStream:
    """One gateway's stream."""

    def __init__(self, metrics: DispatcherMetrics) -> None:
        self._metrics = metrics
        self.outbox: Outbox[dispatcher_pb2.JobEvent] = Outbox(
            max_events=_MAX_EVENTS, max_bytes=_MAX_BYTES
        )
        # Set: the stream ends, whatever is left to write.
        self.cut = asyncio.Event()

    def put(self, event: dispatcher_pb2.JobEvent, *, droppable: bool = False) -> bool:
        """Queues an event for the gateway; False where it is gone or does not read."""
        # Of a job's partials only the last counts.
        replaces = event.job_id if droppable else None
        fits = self.outbox.put(event, event.ByteSize(), droppable=droppable, replaces=replaces)
        if not fits and not droppable and not self.outbox.closed:
            self._metrics.backpressure.labels("gateway").inc()
            self.end()
        return fits

    def end(self) -> None:
        """Ends the stream after what is queued, and soon in any case."""
        self.outbox.close()
        asyncio.get_running_loop().call_later(_FLUSH_S, self.cut.set)


class GatewayStreams:
    """Serves Submit."""

    def __init__(self, *, jobs: Jobs, kept: KeptResults, metrics: DispatcherMetrics) -> None:
        self._jobs = jobs
        self._kept = kept
        self._metrics = metrics
        self._open: set[GatewayStream] = set()
        self._draining = False

    async def submit(
        self, requests: AsyncIterator[dispatcher_pb2.SubmitRequest], context: Context
    ) -> None:
        """Serves one gateway until its stream ends."""
        gateway = GatewayStream(self._metrics)
        self._open.add(gateway)

        async def write() -> None:
            while events := await gateway.outbox.take():
                await context.write(dispatcher_pb2.SubmitResponse(events=events))

        async def read() -> None:
            async for request in requests:
                for submission in request.submissions:
                    await self._take(gateway, submission)

        async def cut() -> None:
            await gateway.cut.wait()

        tasks = [asyncio.create_task(work) for work in (write(), read(), cut())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._open.discard(gateway)
            self._jobs.detach(gateway)
            gateway.outbox.close()
            for task in tasks:
                task.cancel()

    async def _take(self, gateway: GatewayStream, submission: dispatcher_pb2.Submission) -> None:
        match submission.WhichOneof("submission"):
            case "job":
                self._take_job(gateway, submission.job)
            case "attach":
                await self._attach(gateway, submission.attach.job_id)
            case "cancel":
                self._jobs.cancel(submission.cancel.job_id, submission.cancel.why)
            case "taken":
                self._jobs.taken(submission.taken.job_id)

    def _take_job(self, gateway: GatewayStream, spec: dispatcher_pb2.JobSpec) -> None:
        try:
            self.check_open()
            check_job(spec)
        except errors.LinguaError as error:
            self._refuse(gateway, job_id(job_key(spec)), spec, error)
            return
        self._jobs.submit(spec, gateway)

    async def _attach(self, gateway: GatewayStream, wanted: str) -> None:
        if self._jobs.attach(wanted, gateway):
            return
        try:
            result = await self._kept.fetch(wanted)
            if result is None:
                raise errors.JobNotFoundError(
                    f"job {wanted!r} is not known here and no result of it is kept; submit it again"
                )
        except errors.LinguaError as error:
            self._refuse(gateway, wanted, dispatcher_pb2.JobSpec(), error)
            return
        delivered = dispatcher_pb2.JobDelivered(result=result)
        gateway.put(dispatcher_pb2.JobEvent(job_id=wanted, delivered=delivered))

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

    def check_open(self) -> None:
        """Raises DrainingError where no new job is taken."""
        if self._draining:
            raise errors.DrainingError("this dispatcher is draining; submit elsewhere")

    async def drain(self) -> None:
        """Takes no new job, waits until those under way are over, then ends the streams."""
        self._draining = True
        await self._jobs.idle.wait()
        for gateway in self._open:
            gateway.end()
