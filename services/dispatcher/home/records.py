"""The ends of jobs, written to the record that all instances share.

If a job succeeds, the end of its attempt records that. Every other end is recorded here, including
that of a job that no node has seen.
"""

from lingua_scheduler.services.dispatcher.home.job import Job
from lingua_scheduler.services.dispatcher.pool.client import PoolClient
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.services.runtime.timers import now_ms
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, pool_pb2

# The job goes on under the gateway that has its session now, and is recorded there.
_NOT_OURS = common_pb2.ERROR_REASON_SESSION_TAKEN_OVER
# These ends cannot be recorded at the moment, and gateways submit such a job again and again until
# it can go on. Only the last of these ends is recorded, when the job is forgotten.
_NOT_NOW = frozenset(
    (
        common_pb2.ERROR_REASON_SCHEDULER_DEPENDENCY_DOWN,
        common_pb2.ERROR_REASON_DRAINING,
        # The job is submitted again at once; the end could be recorded after it has begun anew.
        common_pb2.ERROR_REASON_HELD_AUDIO_NEEDED,
    )
)
# The pool service accepts errors of up to 4 KiB. Besides the message there is only small metadata.
_MAX_MESSAGE_CHARS = 500


class JobRecords:
    """Records the ends of jobs that have no result."""

    def __init__(self, *, pool: PoolClient, settings: Settings) -> None:
        self._pool = pool
        self._instance_id = settings.instance_id
        self._give_up_ms = settings.job_record_ttl_ms

    def ended(self, job: Job) -> None:
        """A job of this instance failed or was cancelled; its last event says why."""
        if job.last is not None and job.last.failed.reason not in _NOT_NOW:
            self._record(job, job.last.failed)

    def forgotten(self, job: Job) -> None:
        """A job that is over is about to be forgotten: records its end, if that was not done."""
        if job.last is not None and job.last.HasField("failed") and not job.is_recorded:
            self._record(job, job.last.failed)

    def _record(self, job: Job, error: common_pb2.Error) -> None:
        job.is_recorded = True
        if error.reason == _NOT_OURS:
            return
        spec = job.spec
        request = pool_pb2.EndJobRequest(
            job_id=job.job_id,
            home_instance=self._instance_id,
            state=job.machine.state,
            may_begin_anew=job.has_found_no_node,
            error=_bounded(error),
            steps=job.timeline.record(now_ms()),
            job_key=job.key,
            tenant=spec.tenant,
            session_id=spec.session_id,
            utterance_index=spec.utterance_index,
            pair=spec.pair,
            reason=spec.reason,
        )
        self._pool.persistently("end_job", request, self._give_up_ms, patient=True)

    async def cancel_abandoned(self, job: dispatcher_pb2.Job, why: str) -> None:
        """Ends a job whose dispatcher is gone. Raises DependencyDownError."""
        request = pool_pb2.EndJobRequest(
            job_id=job.job_id,
            home_instance=job.home_instance or self._instance_id,
            state=common_pb2.JOB_STATE_CANCELLED,
            error=_bounded(
                common_pb2.Error(reason=common_pb2.ERROR_REASON_JOB_CANCELLED, message=why)
            ),
        )
        await self._pool.end_job(request)


def _bounded(error: common_pb2.Error) -> common_pb2.Error:
    bounded = common_pb2.Error()
    bounded.CopyFrom(error)
    bounded.message = error.message[:_MAX_MESSAGE_CHARS]
    return bounded
