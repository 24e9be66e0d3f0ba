"""Jobs of other homes that a gateway follows here.

A gateway that has taken a session over asks any dispatcher for the session's jobs. If that is not
their home, it gets no events of them. But Redis has a record of every job, and also its result as
soon as the home finds no gateway that takes it. So the dispatcher polls Redis until the job is
over. It does not ask the home, which may be gone.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from lingua_scheduler.services.dispatcher.home.job import Gateway, check_epoch
from lingua_scheduler.services.dispatcher.home.kept_results import KeptResults
from lingua_scheduler.services.dispatcher.views import JobViews
from lingua_scheduler.services.runtime import errors
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2

_log = logging.getLogger(__name__)

_POLL_EVERY_S = 0.2
# Jobs that are polled together, and the pause after them: at most 4000 polls a second, of two small
# reads each. If there are more than 800 jobs, each is polled less often.
_POLLS_A_ROUND = 200
_PAUSE_S = 0.05
# Results that are read at the same time; each may have 3 MiB.
_RESULTS_AT_ONCE = 8
# A home keeps a result that nobody takes after 5 s, or 5 s later if Redis was down.
_KEPT_WITHIN_S = 15.0

_Polled = tuple[bool | BaseException, str | BaseException]


class Follower(Gateway, Protocol):
    """A gateway that may be slow to read."""

    @property
    def has_room(self) -> bool:
        """Whether a result may be queued without displacing others."""


@dataclass(slots=True, eq=False)
class _Followed:
    job_id: str
    gateway: Follower
    epoch: int
    due_s: float
    # Since when its record says that it is done while no result is kept.
    done_since_s: float | None = None


class FollowedJobs:
    """Tells gateways how jobs end that have another home.

    Promises:
    - A followed job ends in one event: its result, or the reason why there is none. If Redis is
      down, the event comes when Redis is back.
    - After `stop`, or once another gateway follows the job, there are no further events.
    - The cost is bounded, however many jobs are followed.
    """

    def __init__(self, *, views: JobViews, kept: KeptResults) -> None:
        self._views = views
        self._kept = kept
        self._followed: dict[str, _Followed] = {}
        # The same in the order in which they are due, and some that are no longer followed.
        self._turns: deque[_Followed] = deque()
        self._came = asyncio.Event()

    def __len__(self) -> int:
        """How many jobs are followed."""
        return len(self._followed)

    def check_epoch(self, job_id: str, epoch: int) -> None:
        """Raises SessionTakenOverError if the job is followed in a later epoch."""
        if job_id in self._followed:
            check_epoch(job_id, epoch, self._followed[job_id].epoch)

    def follow(self, job_id: str, gateway: Follower, epoch: int = 0) -> None:
        """Follows a job for this gateway, and no longer for any other.

        Raises:
            SessionTakenOverError: it is followed in a later epoch of its session.
        """
        self.check_epoch(job_id, epoch)
        before = self._followed.get(job_id)
        latest = max(epoch, before.epoch) if before else epoch
        followed = _Followed(job_id, gateway, latest, self._now())
        self._followed[job_id] = followed
        self._turns.appendleft(followed)
        self._came.set()

    def stop(self, job_id: str, gateway: Follower | None = None) -> None:
        """Stops following a job; if a gateway is given, only if that one follows it."""
        if job_id in self._followed and gateway in (None, self._followed[job_id].gateway):
            del self._followed[job_id]

    def detach(self, gateway: Follower) -> None:
        """Stops following the jobs of a gateway that is gone."""
        for followed in [each for each in self._followed.values() if each.gateway is gateway]:
            del self._followed[followed.job_id]

    async def run(self) -> None:
        """Polls the followed jobs until cancelled."""
        while True:
            if not self._followed:
                self._turns.clear()
                self._came.clear()
                await self._came.wait()
            try:
                if due := self._due():
                    await self._poll(due)
            except Exception:
                # The jobs of this round are lost; their gateways time out.
                _log.exception("polling jobs of other dispatchers failed")
            await asyncio.sleep(_PAUSE_S)

    def _due(self) -> list[_Followed]:
        now = self._now()
        due: list[_Followed] = []
        while self._turns and self._turns[0].due_s <= now and len(due) < _POLLS_A_ROUND:
            followed = self._turns.popleft()
            if self._is_followed(followed):
                due.append(followed)
        return due

    async def _poll(self, due: Sequence[_Followed]) -> None:
        # All at once, so that they share a round trip.
        kept = asyncio.gather(*(self._kept.has(e.job_id) for e in due), return_exceptions=True)
        states = asyncio.gather(*(self._views.state(e.job_id) for e in due), return_exceptions=True)
        polled = zip(await kept, await states, strict=True)
        ended: list[_Followed] = []
        for followed, answers in zip(due, polled, strict=True):
            (ended.append if self._has_ended(followed, answers) else self._again)(followed)
        for start in range(0, len(ended), _RESULTS_AT_ONCE):
            some = ended[start : start + _RESULTS_AT_ONCE]
            await asyncio.gather(*(self._end(followed) for followed in some))

    def _has_ended(self, followed: _Followed, answers: _Polled) -> bool:
        """Whether there may be something to report."""
        is_kept, state = answers
        if any(isinstance(part, errors.LinguaError) for part in answers):
            # The home could not keep a result either.
            followed.done_since_s = None
            return False
        if is_kept or state not in ("done", "reserved", "acked", "retrying"):
            return True
        if state == "done" and followed.done_since_s is None:
            followed.done_since_s = self._now()
        return self._is_given_up(followed)

    def _is_given_up(self, followed: _Followed) -> bool:
        since = followed.done_since_s
        return since is not None and self._now() - since > _KEPT_WITHIN_S

    async def _end(self, followed: _Followed) -> None:
        if not followed.gateway.has_room:
            self._again(followed)
            return
        event: dispatcher_pb2.JobEvent | None
        try:
            event = await self._last_event(followed)
        except errors.DependencyDownError:
            event = None
        except Exception:
            _log.exception("job record unreadable", extra={"job_id": followed.job_id})
            event = dispatcher_pb2.JobEvent(
                failed=common_pb2.Error(
                    reason=common_pb2.ERROR_REASON_INTERNAL,
                    message="the job's record is unreadable",
                )
            )
        if event is None:
            self._again(followed)
        elif self._is_followed(followed):
            del self._followed[followed.job_id]
            event.job_id = followed.job_id
            followed.gateway.put(event)

    async def _last_event(self, followed: _Followed) -> dispatcher_pb2.JobEvent | None:
        """The event that the job ended with; None: it is still going on."""
        result = await self._kept.fetch(followed.job_id)
        try:
            job = await self._views.get(followed.job_id)
        except errors.JobNotFoundError:
            job = dispatcher_pb2.Job()
        event = dispatcher_pb2.JobEvent(
            session_id=job.session_id, utterance_index=job.utterance_index
        )
        if result is not None:
            event.delivered.CopyFrom(_delivered(job, result))
            return event
        why = self._why_none(followed, job)
        if why is None:
            return None
        event.failed.CopyFrom(why)
        return event

    def _why_none(self, followed: _Followed, job: dispatcher_pb2.Job) -> common_pb2.Error | None:
        """Why there will be no result; None: there may be one."""
        match job.state:
            case common_pb2.JOB_STATE_UNSPECIFIED:
                reason = common_pb2.ERROR_REASON_JOB_NOT_FOUND
                message = "the job is not known, and no result of it is kept; submit it again"
            case common_pb2.JOB_STATE_FAILED | common_pb2.JOB_STATE_CANCELLED if job.error.reason:
                return job.error
            case common_pb2.JOB_STATE_CANCELLED:
                reason = common_pb2.ERROR_REASON_JOB_CANCELLED
                message = "the job was cancelled"
            case common_pb2.JOB_STATE_FAILED:
                reason = common_pb2.ERROR_REASON_JOB_FAILED
                message = "the job failed"
            case common_pb2.JOB_STATE_DONE if self._is_given_up(followed):
                reason = common_pb2.ERROR_REASON_JOB_NOT_FOUND
                message = "the job is done, and its result is not kept any more"
            case _:
                return None
        return common_pb2.Error(reason=reason, message=message)

    def _again(self, followed: _Followed) -> None:
        if self._is_followed(followed):
            followed.due_s = self._now() + _POLL_EVERY_S
            self._turns.append(followed)

    def _is_followed(self, followed: _Followed) -> bool:
        return self._followed.get(followed.job_id) is followed

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


def _delivered(
    job: dispatcher_pb2.Job, result: dispatcher_pb2.JobResult
) -> dispatcher_pb2.JobDelivered:
    """A kept result, with what the record says about its attempts."""
    number = result.attempt.attempt
    nodes = [each.node_id for each in job.attempts if each.attempt == number]
    return dispatcher_pb2.JobDelivered(
        result=result, node_id=nodes[0] if nodes else "", attempts=len(job.attempts)
    )
