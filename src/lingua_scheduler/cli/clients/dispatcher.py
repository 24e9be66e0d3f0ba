"""The dispatcher as the commands use it: one method per call."""

from functools import cached_property

from lingua_scheduler.cli.clients.service import ServiceClient
from lingua_scheduler.v1 import dispatcher_pb2, dispatcher_pb2_grpc


class DispatcherClient(ServiceClient):
    """Calls a dispatcher."""

    service = "dispatcher"
    words = "dispatcher"

    @cached_property
    def _stub(self) -> dispatcher_pb2_grpc.DispatcherStub:
        return dispatcher_pb2_grpc.DispatcherStub(self._channel)

    def list_jobs(
        self, wanted: dispatcher_pb2.ListJobsRequest, limit: int
    ) -> tuple[list[dispatcher_pb2.Job], bool]:
        """Up to `limit` jobs, newest first, each once, and whether there may be more.

        Changes `wanted`, as it reads one page after the other.
        """
        return self._newest(
            self._stub.ListJobs,
            wanted,
            lambda page: page.jobs,
            name=lambda job: job.job_id,
            made_ms=lambda job: job.created_ms,
            limit=limit,
        )

    def get_job(self, job_id: str) -> dispatcher_pb2.GetJobResponse:
        """One job, with its result if that is still kept."""
        request = dispatcher_pb2.GetJobRequest(job_id=job_id, with_result=True)
        return self._call(self._stub.GetJob, request)

    def cancel_job(self, job_id: str, why: str) -> dispatcher_pb2.CancelJobResponse:
        """Cancel a job; the response has its state afterwards."""
        request = dispatcher_pb2.CancelJobRequest(job_id=job_id, why=why)
        return self._call(self._stub.CancelJob, request)
