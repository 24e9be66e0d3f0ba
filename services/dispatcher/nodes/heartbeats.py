"""Heartbeats of nodes: answered at once, passed on to the pool service in batches."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator

from lingua_scheduler.services.dispatcher.metrics import DispatcherMetrics
from lingua_scheduler.services.dispatcher.nodes.admission import Admission
from lingua_scheduler.services.dispatcher.nodes.connected import ConnectedNodes
from lingua_scheduler.services.dispatcher.nodes.stream import NodeStream, attempt_key
from lingua_scheduler.services.dispatcher.pool.client import PoolClient
from lingua_scheduler.services.runtime import errors
from lingua_scheduler.services.runtime.contract import limits
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.services.runtime.tasks import BackgroundTasks
from lingua_scheduler.services.runtime.timers import now_ms
from lingua_scheduler.v1 import dispatcher_pb2, pool_pb2

# The most that one call renews: nodes, and bytes of what they say they run.
_BEATS_A_CALL = 1000
_BEATS_BYTES = 512 * 1024
# A node is disconnected if it says nothing for this many heartbeats.
_SILENT_BEATS = 3

_log = logging.getLogger(__name__)


class Heartbeats:
    """Keeps nodes and their leases alive, and disconnects silent nodes."""

    def __init__(
        self,
        *,
        settings: Settings,
        pool: PoolClient,
        metrics: DispatcherMetrics,
        nodes: ConnectedNodes,
        admission: Admission,
    ) -> None:
        self._settings = settings
        self._pool = pool
        self._metrics = metrics
        self._nodes = nodes
        self._admission = admission
        self._tasks = BackgroundTasks()

    def take(self, stream: NodeStream, beat: dispatcher_pb2.Heartbeat) -> None:
        """Takes in a heartbeat and answers it. Raises InvalidMessageError."""
        # One bad beat would have the whole batch refused, and with it those of all other nodes.
        limits.check(beat, "heartbeat.")
        stream.heard_beat(beat)
        reply = dispatcher_pb2.DispatcherMessage()
        reply.events.add().heartbeat_reply.seq = beat.seq
        self._nodes.send(stream, reply)

    async def run(self) -> None:
        """Sends batches of heartbeats and disconnects silent nodes, until cancelled."""
        interval = self._settings.heartbeat_batch_ms / 1000
        while True:
            await asyncio.sleep(interval)
            self._disconnect_silent()
            due = defaultdict[int, list[NodeStream]](list)
            for stream in self._nodes:
                if stream.beat_due:
                    due[stream.cell].append(stream)
            # Side by side: a cell that is slow or away delays the nodes of no other.
            await asyncio.gather(*map(self._send_all, due.values()))

    async def _send_all(self, streams: Iterable[NodeStream]) -> None:
        for request in _batches(streams):
            await self._send(request)

    async def _send(self, request: pool_pb2.HeartbeatRequest) -> None:
        try:
            answer = await self._pool.heartbeat(request)
        except errors.LinguaError as error:
            _log.warning("heartbeats not taken", extra={"reason": str(error)})
            return
        for problem in answer.problems:
            stream = self._nodes.get(problem.node_id)
            if stream is not None:
                self._solve(stream, problem)

    def _solve(self, stream: NodeStream, problem: pool_pb2.BeatProblem) -> None:
        match problem.kind:
            case pool_pb2.BeatProblem.KIND_REGISTER_AGAIN:
                self._tasks.spawn(self._admission.register_again(stream))
            case pool_pb2.BeatProblem.KIND_EPOCH_OLD:
                why = "a newer connection of this node has taken over"
                self._nodes.end(stream, errors.NodeEpochOldError(why))
            case pool_pb2.BeatProblem.KIND_NOT_RENEWED:
                ended = {attempt_key(each) for each in stream.hello.unconfirmed}
                for attempt in problem.attempts:
                    # If the attempt has ended meanwhile, a cancel would make the node drop the
                    # result, which it has to keep until the result is taken.
                    key = attempt_key(attempt)
                    if key in stream.running and key not in ended:
                        why = "the job no longer wants this attempt"
                        cancel = dispatcher_pb2.JobCancel(attempt=attempt, why=why)
                        self._nodes.cancel(stream.node_id, cancel)

    def _disconnect_silent(self) -> None:
        limit = now_ms() - _SILENT_BEATS * self._settings.node_heartbeat_ms
        for stream in [each for each in self._nodes if each.heard_ms < limit]:
            _log.warning("node fell silent", extra={"node_id": stream.node_id})
            self._metrics.silent.inc()
            self._nodes.remove(stream)
            stream.end(errors.DeadlineExceededError("the node has said nothing for too long"))


def _batches(streams: Iterable[NodeStream]) -> Iterator[pool_pb2.HeartbeatRequest]:
    """Packs due heartbeats of one cell into requests: the long list of one node delays no other."""
    request, size = pool_pb2.HeartbeatRequest(), 0
    for stream in streams:
        stream.beat_due = False
        beat = stream.beat()
        size += beat.ByteSize()
        request.beats.append(beat)
        if len(request.beats) == _BEATS_A_CALL or size > _BEATS_BYTES:
            yield request
            request, size = pool_pb2.HeartbeatRequest(), 0
    if request.beats:
        yield request
