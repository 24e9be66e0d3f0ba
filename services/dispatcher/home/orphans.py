"""Orphans: results and failures of attempts that have no home here.

Their home may have died, and another dispatcher may take the job up and ask the node for the
result. So a result is kept in Redis, and the node is not told to forget it yet. But a node must not
keep a result forever that nobody will ask for: an orphan is checked again and again until its job
is over, its job is unknown, or a kept result would have expired. Then it is confirmed.

If Redis is down, results wait here until it is back: a home whose gateway died with it has no audio
left, so nobody else would ask the node.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable

from lingua_scheduler.services.dispatcher.home.kept_results import KeptResults
from lingua_scheduler.services.dispatcher.metrics import DispatcherMetrics
from lingua_scheduler.services.dispatcher.nodes.stream import AttemptKey, attempt_key
from lingua_scheduler.services.runtime import errors
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.services.runtime.tasks import BackgroundTasks
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2

_log = logging.getLogger(__name__)

_CHECK_EVERY_S = 1.0
# Orphans that are checked again. If there are more, the oldest is dropped; its node reports it once
# more when it reconnects.
_MAX_ORPHANS = 1000
# Bytes of results that wait here for Redis. What is beyond stays at its node.
_MAX_UNKEPT_BYTES = 32 * 2**20
# Checks at the same time, so that other calls to Redis do not wait long behind them.
_CHECKS_AT_ONCE = 64

Report = dispatcher_pb2.JobResult | dispatcher_pb2.JobFailed
# A node and its attempt.
_Orphan = tuple[str, AttemptKey]


class Orphans:
    """Keeps the results of orphans, and confirms orphans that nobody will ask for.

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
        # If Redis does not know a job, its home may still be alive.
        self._unknown_s = settings.node_reconnect_grace_ms / 1000
        self._wanted_s = settings.kept_result_ms / 1000
        # Since when each is known. The oldest first.
        self._known: OrderedDict[_Orphan, float] = OrderedDict()
        # Results that Redis could not take yet.
        self._unkept: dict[_Orphan, dispatcher_pb2.JobResult] = {}
        self._unkept_bytes = 0
        self._tasks = BackgroundTasks()

    def __len__(self) -> int:
        """How many orphans are checked again."""
        return len(self._known)

    def take(self, node_id: str, report: Report) -> None:
        """A node has reported how an attempt ended."""
        result = report if isinstance(report, dispatcher_pb2.JobResult) else None
        self._tasks.spawn(self._take(node_id, report.attempt, result))

    async def run(self) -> None:
        """Checks the known orphans until cancelled."""
        while True:
            await asyncio.sleep(_CHECK_EVERY_S)
            known = list(self._known)
            for start in range(0, len(known), _CHECKS_AT_ONCE):
                some = known[start : start + _CHECKS_AT_ONCE]
                await asyncio.gather(*(self._look_again(orphan) for orphan in some))

    async def _look_again(self, orphan: _Orphan) -> None:
        if (result := self._unkept.get(orphan)) is not None:
            await self._keep(orphan, result)
        node_id, key = orphan
        await self._check(node_id, _ref(key))

    async def _take(
        self,
        node_id: str,
        attempt: common_pb2.AttemptRef,
        result: dispatcher_pb2.JobResult | None,
    ) -> None:
        orphan = (node_id, attempt_key(attempt))
        while orphan not in self._known and len(self._known) >= _MAX_ORPHANS:
            oldest, _ = self._known.popitem(last=False)
            self._drop_result(oldest)
        self._known.setdefault(orphan, self._now())
        if result is not None:
            await self._keep(orphan, result)
        await self._check(node_id, attempt)

    async def _keep(self, orphan: _Orphan, result: dispatcher_pb2.JobResult) -> None:
        node_id, (job_id, _) = orphan
        try:
            is_kept = await self._kept.keep_orphan(job_id, result, node_id)
        except errors.LinguaError as error:
            if orphan not in self._unkept:
                facts = {"job_id": job_id, "node_id": node_id, "reason": str(error)}
                _log.info("orphaned result not kept", extra=facts)
            self._wait_with(orphan, result)
            return
        self._drop_result(orphan)
        if not is_kept:
            self._metrics.late_results.inc()

    def _wait_with(self, orphan: _Orphan, result: dispatcher_pb2.JobResult) -> None:
        """Remembers a result that Redis cannot take now, if there is room for it."""
        self._drop_result(orphan)
        size = result.ByteSize()
        if orphan in self._known and self._unkept_bytes + size <= _MAX_UNKEPT_BYTES:
            self._unkept[orphan] = result
            self._unkept_bytes += size

    def _drop_result(self, orphan: _Orphan) -> None:
        result = self._unkept.pop(orphan, None)
        if result is not None:
            self._unkept_bytes -= result.ByteSize()

    async def _check(self, node_id: str, attempt: common_pb2.AttemptRef) -> None:
        orphan = (node_id, attempt_key(attempt))
        try:
            state = await self._kept.orphan_state(attempt, node_id)
        except errors.LinguaError:
            return
        since = self._known.get(orphan)
        if since is None:
            return
        age_s = self._now() - since
        if (
            state == "unwanted"
            or (state == "unknown" and age_s >= self._unknown_s)
            or age_s >= self._wanted_s
        ):
            del self._known[orphan]
            self._drop_result(orphan)
            self._confirm(node_id, attempt)

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


def _ref(key: AttemptKey) -> common_pb2.AttemptRef:
    return common_pb2.AttemptRef(job_id=key[0], attempt=key[1])
