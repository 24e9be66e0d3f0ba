"""Results and failures of attempts that nobody here answers for.

Their dispatcher may have died, and another one may take the job up and ask the node for the result;
so a result is kept in Redis, and the node is not told to forget it at once. But a node must not
keep for ever what nobody will ask for: such a report is looked at again until its job is over,
nobody knows it, or a kept result would be gone too. Then it is confirmed.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable

from lingua_scheduler.services.dispatcher.home.kept_results import KeptResults
from lingua_scheduler.services.dispatcher.metrics import DispatcherMetrics
from lingua_scheduler.services.dispatcher.nodes.attempts import AttemptKey, attempt_key
from lingua_scheduler.services.runtime import errors
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2

_log = logging.getLogger(__name__)

_LOOK_EVERY_S = 1.0
# Reports that are looked at again. Of more, the oldest is left to its node, which says it again
# when it connects anew.
_MAX_WAITING = 1000
# Looks at the same time: other calls do not wait long behind them.
_LOOKS_AT_ONCE = 64

Report = dispatcher_pb2.JobResult | dispatcher_pb2.JobFailed


class Orphans:
    """Takes reports that no job here is waiting for.

    Args:
        confirm: tells a node that it may forget a report.
    """

    def __init__(
        self,
        *,
        kept: KeptResults,
        settings: Settings,
        metrics: DispatcherMetrics,
        confirm: Callable[[str, common_pb2.AttemptRef], None],
    ) -> None:
        self._kept = kept
        self._metrics = metrics
        self._confirm = confirm
        # Its dispatcher may be there, and only Redis has forgotten the job.
        self._unknown_s = settings.node_reconnect_grace_ms / 1000
        self._wanted_s = settings.kept_result_ms / 1000
        # By node and attempt, since when: the oldest first.
        self._waiting: OrderedDict[tuple[str, AttemptKey], float] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        """Reports that are looked at again."""
        return len(self._waiting)

    def take(self, node_id: str, report: Report) -> None:
        """A node has said how an attempt ended."""
        result = report if isinstance(report, dispatcher_pb2.JobResult) else None
        task = asyncio.create_task(self._take(node_id, report.attempt, result))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def run(self) -> None:
        """Looks at what waits until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            waiting = list(self._waiting)
            for start in range(0, len(waiting), _LOOKS_AT_ONCE):
                some = waiting[start : start + _LOOKS_AT_ONCE]
                await asyncio.gather(*(self._look(node_id, _ref(key)) for node_id, key in some))

    async def _take(
        self,
        node_id: str,
        attempt: common_pb2.AttemptRef,
        result: dispatcher_pb2.JobResult | None,
    ) -> None:
        orphan = (node_id, attempt_key(attempt))
        while orphan not in self._waiting and len(self._waiting) >= _MAX_WAITING:
            self._waiting.popitem(last=False)
        self._waiting.setdefault(orphan, self._now())
        job_id = attempt.job_id
        try:
            if result is not None and not await self._kept.keep_orphan(job_id, result, node_id):
                self._metrics.late_results.inc()
        except errors.LinguaError as error:
            _log.info("a result could not be kept: %s", error, extra={"job_id": job_id})
        await self._look(node_id, attempt)

    async def _look(self, node_id: str, attempt: common_pb2.AttemptRef) -> None:
        try:
            state = await self._kept.orphan_state(attempt, node_id)
        except errors.LinguaError:
            return
        orphan = (node_id, attempt_key(attempt))
        since = self._waiting.get(orphan)
        if since is None:
            return
        age_s = self._now() - since
        if (
            state == "unwanted"
            or (state == "unknown" and age_s >= self._unknown_s)
            or age_s >= self._wanted_s
        ):
            del self._waiting[orphan]
            self._confirm(node_id, attempt)

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


def _ref(key: AttemptKey) -> common_pb2.AttemptRef:
    return common_pb2.AttemptRef(job_id=key[0], attempt=key[1])
