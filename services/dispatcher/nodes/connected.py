"""The nodes that are connected to this dispatcher, and the orders that they are given.

A node is connected from the moment the pool service has registered it until its stream ends, falls
silent, or a newer connection of the same node takes over. Attempts stay with the responsible: a
node that comes back in time, to this dispatcher or another, keeps its jobs.
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Iterator
from typing import Any

from lingua_scheduler.services.dispatcher.metrics import DispatcherMetrics
from lingua_scheduler.services.dispatcher.nodes.held_audio import HeldAudio
from lingua_scheduler.services.dispatcher.nodes.stream import (
    Assignment,
    AttemptKey,
    NodeStream,
    Responsible,
    attempt_key,
)
from lingua_scheduler.services.dispatcher.pool.client import PoolClient
from lingua_scheduler.services.runtime import errors
from lingua_scheduler.services.runtime.tasks import BackgroundTasks
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, pool_pb2

# A confirmed result shares a message with the next job, if that comes soon: no node waits for it.
_CONFIRM_WITHIN_S = 0.1

_GO_ELSEWHERE = dispatcher_pb2.Reconnect(why="this dispatcher is draining")

_log = logging.getLogger(__name__)


class ConnectedNodes:
    """The streams of all connected nodes, by node."""

    def __init__(self, *, pool: PoolClient, metrics: DispatcherMetrics, held: HeldAudio) -> None:
        self._pool = pool
        self._metrics = metrics
        self._held = held
        self._streams: dict[str, NodeStream] = {}
        # Nodes that the pool may already know to be here, but that cannot be given anything yet.
        self._admitting: Counter[str] = Counter()
        self._tasks = BackgroundTasks()
        self._last_has_gone = asyncio.Event()
        self.draining = False
        """Whether nodes are told to connect elsewhere."""

    def __len__(self) -> int:
        return len(self._streams)

    def __contains__(self, node_id: str) -> bool:
        return node_id in self._streams

    def __iter__(self) -> Iterator[NodeStream]:
        return iter(self._streams.values())

    def get(self, node_id: str) -> NodeStream | None:
        """The stream of a node, if it is connected here."""
        return self._streams.get(node_id)

    def serves(self, node_id: str) -> frozenset[str]:
        """The pools that a node is in; none if the node is not connected here."""
        stream = self._streams.get(node_id)
        return stream.serves if stream is not None else frozenset()

    # ---- orders ----

    def assign(
        self,
        node_id: str,
        epoch: int,
        message: dispatcher_pb2.DispatcherMessage,
        responsible: Responsible,
    ) -> str:
        """Gives a node an attempt, a `job_assign`. Returns "" or why that is not possible."""
        stream = self._streams.get(node_id)
        if stream is None:
            if node_id in self._admitting:
                return "the node is still connecting here"
            # The pool does not know that yet, or it would not have chosen the node.
            self._pool.take_offline(node_id, epoch)
            return "the node is not connected here"
        if epoch and stream.epoch != epoch:
            return "the node has reconnected"
        assign = message.events[0].job_assign
        key = attempt_key(assign.attempt)
        if not assign.only_if_known and stream.is_full and not stream.has(key):
            return "all slots of the node are taken"
        assignment = Assignment(assign.job, responsible, has_slot=not assign.only_if_known)
        if not self.send(stream, message, assignment=assignment):
            return "the node does not read what it is sent"
        stream.assigned[key] = assignment
        self._held.assigned(stream, key, assign.job)
        return ""

    def cancel(self, node_id: str, cancel: dispatcher_pb2.JobCancel) -> None:
        """Tells a node to stop an attempt, if it is connected here."""
        stream = self._streams.get(node_id)
        if stream is not None:
            stream.drop(attempt_key(cancel.attempt))
            self.send(stream, node_message(job_cancel=cancel))

    def confirm(self, node_id: str, attempt: common_pb2.AttemptRef) -> None:
        """Tells a node that it may forget a result, if it is connected here."""
        stream = self._streams.get(node_id)
        if stream is not None:
            message = dispatcher_pb2.DispatcherMessage()
            message.events.add().result_received.attempt.CopyFrom(attempt)
            self.send(stream, message, within_s=_CONFIRM_WITHIN_S)

    def abandon(self, responsible: Responsible) -> None:
        """Forgets a responsible that is gone. Its attempts go on; a new home will ask for them."""
        for stream in self._streams.values():
            for assignment in stream.assigned.values():
                if assignment.responsible is responsible:
                    assignment.responsible = None

    def send(
        self,
        stream: NodeStream,
        message: dispatcher_pb2.DispatcherMessage,
        *,
        assignment: Assignment | None = None,
        within_s: float = 0.0,
    ) -> bool:
        """Queues a message. If too much waits already, the node is disconnected; it may return."""
        data = message.SerializeToString()
        if stream.outbox.put((data, assignment), len(data), within_s=within_s):
            return True
        if not stream.outbox.closed:
            self._metrics.backpressure.labels("node").inc()
            _log.warning("node does not read", extra={"node_id": stream.node_id})
            stream.end(errors.BackpressureError("the node does not read what it is sent"))
            # Later: the caller is in the middle of something.
            asyncio.get_running_loop().call_soon(self.remove, stream)
        return False

    # ---- connections ----

    @contextlib.contextmanager
    def admitting(self, node_id: str) -> Iterator[None]:
        """Inside the block the node is being connected: it is not reported as offline."""
        self._admitting[node_id] += 1
        try:
            yield
        finally:
            self._admitting -= Counter((node_id,))

    def add(self, stream: NodeStream) -> None:
        """Adds a connection. It takes over from an older one of the same node.

        Raises:
            NodeEpochOldError: a newer connection of the node is here already.
        """
        old = self._streams.get(stream.node_id)
        if old is not None and old.epoch > stream.epoch:
            raise errors.NodeEpochOldError("a newer connection of this node was faster")
        self._streams[stream.node_id] = stream
        self._metrics.nodes.set(len(self._streams))
        if old is None:
            return
        for key, assignment in old.assigned.items():
            if key in stream.brought:
                stream.assigned[key] = assignment
            else:
                _tell_lost(stream.node_id, key, assignment)
        old.assigned.clear()
        self.end(old, errors.NodeEpochOldError("a newer connection of this node has taken over"))

    def end(self, stream: NodeStream, error: errors.LinguaError) -> None:
        """Ends a stream with an error, as its last message and as its status."""
        self.send(stream, node_message(error=errors.to_proto(error)))
        stream.end(error)

    def remove(self, stream: NodeStream) -> None:
        """Removes a connection that is over: the pool and all responsibles are told at once."""
        if self._streams.get(stream.node_id) is not stream:
            return
        del self._streams[stream.node_id]
        self._metrics.nodes.set(len(self._streams))
        if self.draining and not self._streams:
            self._last_has_gone.set()
        _log.info("node disconnected", extra={"node_id": stream.node_id})
        for key, assignment in stream.assigned.items():
            _tell_lost(stream.node_id, key, assignment)
        if stream.said_bye:
            self._tasks.spawn(self._remove_from_pool(stream))
        else:
            self._pool.take_offline(stream.node_id, stream.epoch)

    async def drain(self) -> None:
        """Tells every node to connect elsewhere, and waits until all have gone."""
        self.draining = True
        for stream in self._streams.values():
            self.send_elsewhere(stream)
        if self._streams:
            await self._last_has_gone.wait()

    def send_elsewhere(self, stream: NodeStream) -> None:
        """Tells a node to connect elsewhere."""
        self.send(stream, node_message(reconnect=_GO_ELSEWHERE))

    async def _remove_from_pool(self, stream: NodeStream) -> None:
        request = pool_pb2.RemoveNodeRequest(node_id=stream.node_id, epoch=stream.epoch)
        try:
            await self._pool.remove_node(request)
        except errors.LinguaError as error:
            facts = {"node_id": stream.node_id, "reason": str(error)}
            _log.info("node not removed from the pool", extra=facts)


def node_message(**event: Any) -> dispatcher_pb2.DispatcherMessage:
    """A message to a node with one event."""
    return dispatcher_pb2.DispatcherMessage(events=[dispatcher_pb2.DispatcherEvent(**event)])


def _tell_lost(node_id: str, key: AttemptKey, assignment: Assignment) -> None:
    if assignment.responsible is not None:
        attempt = common_pb2.AttemptRef(job_id=key[0], attempt=key[1])
        assignment.responsible.on_lost(node_id, attempt)
