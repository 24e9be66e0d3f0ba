"""The RPCs of the dispatcher. The streams are served in `gateways` and `nodes`."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import grpc

from lingua_scheduler.services.dispatcher.gateways.streams import GatewayStreams
from lingua_scheduler.services.dispatcher.home.job import JobRegistry
from lingua_scheduler.services.dispatcher.home.kept_results import KeptResults
from lingua_scheduler.services.dispatcher.home.records import JobRecords
from lingua_scheduler.services.dispatcher.home.submissions import Submissions
from lingua_scheduler.services.dispatcher.job_list import JobList
from lingua_scheduler.services.dispatcher.job_log import OVER
from lingua_scheduler.services.dispatcher.nodes.relay_server import RelayServer
from lingua_scheduler.services.dispatcher.nodes.streams import NodeStreams
from lingua_scheduler.services.dispatcher.validate import check_job, check_list, set_limits
from lingua_scheduler.services.dispatcher.views import JobViews, job_not_found
from lingua_scheduler.services.runtime import errors
from lingua_scheduler.services.runtime.auth import principals
from lingua_scheduler.services.runtime.contract.job_ids import job_id, job_key
from lingua_scheduler.services.runtime.instances import Instances
from lingua_scheduler.services.runtime.rpc.channels import Dialer
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.services.runtime.telemetry.traces import outside_spans, trace_metadata
from lingua_scheduler.services.runtime.timers import now_ms
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, dispatcher_pb2_grpc

# For a call that is forwarded to another instance.
_FORWARD_WITHIN_S = 2.0

Context = grpc.aio.ServicerContext[Any, Any]


class _OneJob:
    """Waits for the first event that decides about one job."""

    def __init__(self) -> None:
        self.answered: asyncio.Future[dispatcher_pb2.JobEvent] = (
            asyncio.get_running_loop().create_future()
        )

    def put(self, event: dispatcher_pb2.JobEvent, *, droppable: bool = False) -> bool:
        """Notes the event if it decides: a node has the job, or none will. Results are kept."""
        decides = event.WhichOneof("event") in ("accepted", "delivered", "failed")
        if decides and not self.answered.done():
            self.answered.set_result(event)
        return not event.HasField("delivered")


class DispatcherServicer(dispatcher_pb2_grpc.DispatcherServicer):
    """Every RPC of Dispatcher."""

    def __init__(
        self,
        *,
        registry: JobRegistry,
        submissions: Submissions,
        nodes: NodeStreams,
        gateways: GatewayStreams,
        relays: RelayServer,
        views: JobViews,
        jobs: JobList,
        kept: KeptResults,
        records: JobRecords,
        instances: Instances,
        dialer: Dialer,
        settings: Settings,
    ) -> None:
        self._registry = registry
        self._submissions = submissions
        self._nodes = nodes
        self._gateways = gateways
        self._relays = relays
        self._views = views
        self._jobs = jobs
        self._kept = kept
        self._records = records
        self._instances = instances
        self._dialer = dialer
        self._settings = settings

    # grpc.aio accepts coroutines that write as well as iterators; the generated stub declares only
    # the latter.
    async def Connect(  # type: ignore[override]  # noqa: N802 - the contract's name, as all below
        self, request_iterator: AsyncIterator[dispatcher_pb2.NodeMessage], context: Context
    ) -> None:
        await self._nodes.connect(request_iterator, context)

    async def Submit(  # type: ignore[override]  # noqa: N802
        self, request_iterator: AsyncIterator[dispatcher_pb2.SubmitRequest], context: Context
    ) -> None:
        await self._gateways.submit(request_iterator, context)

    async def Relay(  # type: ignore[override]  # noqa: N802
        self, request_iterator: AsyncIterator[dispatcher_pb2.RelayRequest], context: Context
    ) -> None:
        await self._relays.relay(request_iterator, context)

    async def Dispatch(  # noqa: N802
        self, request: dispatcher_pb2.DispatchRequest, context: Context
    ) -> dispatcher_pb2.DispatchResponse:
        check_job(request.job, "job.")
        request.job.tenant = principals.tenant_for(request.job.tenant, "job.tenant")
        set_limits(request.job, self._settings, "job.")
        if await self._views.is_gateway_session(request.job.session_id):
            # Its jobs and turns belong to the gateway; a caller of Dispatch could disturb them.
            problem = "is a session of a gateway; use an id of your own"
            raise errors.InvalidMessageError(
                f"job.session_id: {problem}", fields=[("job.session_id", problem)]
            )
        key, caller = job_key(request.job), _OneJob()
        id_ = job_id(key, request.job.session_id)
        known = self._registry.get(id_)
        with outside_spans() as call:
            job = self._submissions.submit(
                request.job, caller, brought_by=call, key=key, job_id=id_
            )
        event = await caller.answered
        if event.HasField("failed"):
            raise errors.from_proto(event.failed)
        if event.HasField("accepted"):
            node_id, attempt = event.accepted.node_id, event.accepted.attempt
        else:
            node_id = event.delivered.node_id
            attempt = event.delivered.result.attempt.attempt
        return dispatcher_pb2.DispatchResponse(
            job_id=job.job_id,
            node_id=node_id,
            attempt_id=attempt,
            existing=job is known or job.is_taken_up,
        )

    async def GetJob(  # noqa: N802
        self, request: dispatcher_pb2.GetJobRequest, context: Context
    ) -> dispatcher_pb2.GetJobResponse:
        job = await self._job(request.job_id)
        if principals.own_tenant() not in ("", job.tenant):
            raise job_not_found(request.job_id)
        if principals.own_tenant():
            for attempt in job.attempts:
                # The node's own description is for operators only.
                attempt.detail = ""
        if not job.steps and job.state not in OVER:
            job.steps.extend(await self._steps_at_home(job))
        response = dispatcher_pb2.GetJobResponse(job=job)
        who = principals.caller()
        if request.with_result and who is not None and who.role is principals.Role.VIEWER:
            raise errors.PermissionDeniedError("a viewer may not see results: unset with_result")
        if request.with_result:
            result = await self._kept.fetch(request.job_id)
            if result is not None:
                response.result.CopyFrom(result)
        return response

    async def _job(self, job_id: str) -> dispatcher_pb2.Job:
        """The shared record, with what only the home knows."""
        home = self._registry.get(job_id)
        try:
            job = await self._views.get(job_id)
        except errors.JobNotFoundError:
            if home is None:
                raise
            job = dispatcher_pb2.Job(
                job_id=job_id,
                job_key=home.key,
                tenant=home.spec.tenant,
                session_id=home.spec.session_id,
                utterance_index=home.spec.utterance_index,
                pair=home.spec.pair,
            )
        if home is not None:
            job.state = home.machine.state
            job.reason = home.spec.reason
            _add_last(job, home.last)
            timeline = home.timeline.messages(now_ms())
            del job.steps[:]
            job.steps.extend(timeline.steps)
            if timeline.result_kind:
                job.result_kind = dispatcher_pb2.JobResult.Kind.ValueType(timeline.result_kind)
                job.joined_utterances[:] = timeline.joined_utterances
                job.turn_broken = timeline.turn_broken
        return job

    async def _steps_at_home(self, job: dispatcher_pb2.Job) -> Sequence[common_pb2.JobStep]:
        """The timeline of a job that is under way; empty if its home is gone."""
        address = ""
        if job.home_instance != self._settings.instance_id:
            address = await self._instances.address_of(job.home_instance)
        if not address:
            return ()
        request = dispatcher_pb2.GetJobRequest(job_id=job.job_id)
        async with self._dialer.channel(address) as channel:
            stub: Any = dispatcher_pb2_grpc.DispatcherStub(channel)
            try:
                found = await stub.GetJob(
                    request, timeout=_FORWARD_WITHIN_S, metadata=self._metadata()
                )
            except grpc.aio.AioRpcError:
                return ()
            assert isinstance(found, dispatcher_pb2.GetJobResponse)
            return found.job.steps

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        return self._dialer.metadata() + trace_metadata()

    async def ListJobs(  # noqa: N802
        self, request: dispatcher_pb2.ListJobsRequest, context: Context
    ) -> dispatcher_pb2.ListJobsResponse:
        check_list(request)
        return await self._jobs.page(request)

    async def ListJobChanges(  # noqa: N802
        self, request: dispatcher_pb2.ListJobChangesRequest, context: Context
    ) -> dispatcher_pb2.ListJobChangesResponse:
        return await self._jobs.changes(request)

    async def CancelJob(  # noqa: N802
        self, request: dispatcher_pb2.CancelJobRequest, context: Context
    ) -> dispatcher_pb2.CancelJobResponse:
        with outside_spans():
            is_here = self._submissions.cancel(request.job_id, request.why)
        if not is_here:
            job = await self._job(request.job_id)
            home = await self._instances.address_of(job.home_instance)
            if home and job.state not in OVER:
                return await self._cancel_at(home, request)
            if job.state not in OVER:
                await self._records.cancel_abandoned(job, request.why or "cancelled")
        job = await self._job(request.job_id)
        return dispatcher_pb2.CancelJobResponse(state=job.state)

    async def _cancel_at(
        self, address: str, request: dispatcher_pb2.CancelJobRequest
    ) -> dispatcher_pb2.CancelJobResponse:
        """Forwards the call: only a job's home can cancel it."""
        async with self._dialer.channel(address) as channel:
            stub: Any = dispatcher_pb2_grpc.DispatcherStub(channel)
            try:
                response = await stub.CancelJob(
                    request, timeout=_FORWARD_WITHIN_S, metadata=self._metadata()
                )
            except grpc.aio.AioRpcError as error:
                raise errors.DependencyDownError(
                    "the dispatcher that runs the job cannot be reached",
                    why=f"{address}: {error.details()}",
                ) from error
            assert isinstance(response, dispatcher_pb2.CancelJobResponse)
            return response


def _add_last(job: dispatcher_pb2.Job, last: dispatcher_pb2.JobEvent | None) -> None:
    """Adds what the home knows about the end: the error, or the timings of the node's stages."""
    if last is None:
        return
    if last.HasField("failed"):
        job.error.CopyFrom(last.failed)
    elif last.HasField("delivered"):
        result = last.delivered.result
        for attempt in job.attempts:
            if attempt.attempt == result.attempt.attempt:
                attempt.timings.extend(result.timings)
