"""Jobs of other homes, whose end a gateway waits for here.

A gateway that has taken a session over asks any dispatcher for the session's jobs. One that is not
their home hears nothing of them; but Redis has a record of every job, and its result as soon as the
home finds no gateway that takes it. So the job is looked at there, again and again, until it is
over. Nothing is asked of the home, which may be gone by then.
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

_LOOK_EVERY_S = 0.2
# Jobs that are looked at together, and the pause after them: at most 4000 looks a second, two small
# reads each. Of more than 800 jobs, each is looked at less often.
_LOOKS_A_ROUND = 200
_PAUSE_S = 0.05
# Results that are read at the same time, of up to 3 MiB each.
_RESULTS_AT_ONCE = 8
# A home keeps a result that nobody takes after 5 s, and where Redis was away then, 5 s later.
_KEPT_WITHIN_S = 15.0

_Look = tuple[bool | BaseException, str | BaseException]


class Follower(Gateway, Protocol):
    """A gateway that may be behind with what it has to read."""

    @property
    def has_room(self) -> bool:
        """Whether a result can be put without harm."""


@dataclass(slots=True, eq=False)
class _Followed:
    job_id: str
    gateway: Follower
    epoch: int
    due_s: float
    # Since when the record says that it is done, though no result is kept.
    done_since_s: float | None = None


class FollowedJobs:
    """Tells gateways of the ends of jobs that have another home.

    Promises:
    - A job that is followed ends in one event: its result, or why there is none. Where Redis cannot
      be asked, that comes when it can be asked again.
    - After `stop`, and after another gateway follows the job, nothing more is said of it.
    - However many jobs are followed, the cost is bounded.
    """

    def __init__(self, *, views: JobViews, kept: KeptResults) -> None:
        self._views = views
        self._kept = kept
        self._followed: dict[str, _Followed] = {}
        # The same by when they are due, and some that are not followed any more.
        self._turns: deque[_Followed] = deque()
        self._came = asyncio.Event()

    def __len__(self) -> int:
        """Jobs that are followed."""
        return len(self._followed)

    def check_epoch(self, wanted: str, epoch: int) -> None:
        """Raises SessionTakenOverError where the job is followed in a later epoch."""
        if wanted in self._followed:
            check_epoch(wanted, epoch, self._followed[wanted].epoch)

    def follow(self, wanted: str, gateway: Follower, epoch: int = 0) -> None:
        """Follows a job for this gateway, and for no other one any more.

        Raises:
            SessionTakenOverError: it is followed in a later epoch of its session.
        """
        self.check_epoch(wanted, epoch)
        before = self._followed.get(wanted)
        latest = max(epoch, before.epoch) if before else epoch
        followed = _Followed(wanted, gateway, latest, self._now())
        self._followed[wanted] = followed
        self._turns.appendleft(followed)
        self._came.set()

    def stop(self, wanted: str, gateway: Follower | None = None) -> None:
        """Follows a job no longer; with a gateway, only where it is that one which waits for it."""
        if wanted in self._followed and gateway in (None, self._followed[wanted].gateway):
            del self._followed[wanted]

    def detach(self, gateway: Follower) -> None:
        """A gateway is gone."""
        for wanted in [each.job_id for each in self._followed.values() if each.gateway is gateway]:
            del self._followed[wanted]

    async def run(self) -> None:
        """Looks at the jobs until cancelled."""
        while True:
            if not self._followed:
                self._turns.clear()
                self._came.clear()
                await self._came.wait()
            try:
                if due := self._due():
                    await self._look_at(due)
            except Exception:
                # Those of this round are lost; their gateways give them up by themselves.
                _log.exception("a look at jobs of other homes failed")
            await asyncio.sleep(_PAUSE_S)

    def _due(self) -> list[_Followed]:
        now = self._now()
        due: list[_Followed] = []
        while self._turns and self._turns[0].due_s <= now and len(due) < _LOOKS_A_ROUND:
            followed = self._turns.popleft()
            if self._is_followed(followed):
                due.append(followed)
        return due

    async def _look_at(self, due: Sequence[_Followed]) -> None:
        # All at once, so that they share a round trip.
        kept = asyncio.gather(*(self._kept.has(e.job_id) for e in due), return_exceptions=True)
        states = asyncio.gather(*(self._views.state(e.job_id) for e in due), return_exceptions=True)
        looks = zip(await kept, await states, strict=True)
        ended: list[_Followed] = []
        for followed, look in zip(due, looks, strict=True):
            (ended.append if self._has_ended(followed, look) else self._again)(followed)
        for start in range(0, len(ended), _RESULTS_AT_ONCE):
            some = ended[start : start + _RESULTS_AT_ONCE]
            await asyncio.gather(*(self._end(followed) for followed in some))

    def _has_ended(self, followed: _Followed, look: _Look) -> bool:
        """Whether there may be something to tell."""
        is_kept, state = look
        if any(isinstance(part, errors.LinguaError) for part in look):
            # Nor could the home keep a result.
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
            _log.exception("a job's record makes no sense", extra={"job_id": followed.job_id})
            event = dispatcher_pb2.JobEvent(
                failed=common_pb2.Error(
                    reason=common_pb2.ERROR_REASON_INTERNAL, message="its record makes no sense"
                )
            )
        if event is None:
            self._again(followed)
        elif self._is_followed(followed):
            del self._followed[followed.job_id]
            event.job_id = followed.job_id
            followed.gateway.put(event)

    async def _last_event(self, followed: _Followed) -> dispatcher_pb2.JobEvent | None:
        """What the job ended with; None where it goes on after all."""
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
        """Why there will be no result; None where there may be one."""
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
            followed.due_s = self._now() + _LOOK_EVERY_S
            self._turns.append(followed)

    def _is_followed(self, followed: _Followed) -> bool:
        return self._followed.get(followed.job_id) is followed

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


def _delivered(
    job: dispatcher_pb2.Job, result: dispatcher_pb2.JobResult
) -> dispatcher_pb2.JobDelivered:
    """A kept result, with what the record knows of its attempts."""
    number = result.attempt.attempt
    nodes = [each.node_id for each in job.attempts if each.attempt == number]
    return dispatcher_pb2.JobDelivered(
        result=result, node_id=nodes[0] if nodes else "", attempts=len(job.attempts)
    )
