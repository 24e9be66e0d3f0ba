"""Audio that nodes hold for the next utterance of a turn, and the bindings that follow from it."""

import asyncio
from functools import partial
from typing import Any

from lingua_scheduler.services.dispatcher.metrics import DispatcherMetrics
from lingua_scheduler.services.dispatcher.nodes.stream import AttemptKey, NodeStream, attempt_key
from lingua_scheduler.services.dispatcher.pool.client import PoolClient
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, pool_pb2

# What a job binds if the node holds its audio, by how its speech ended. A sentence that its speaker
# has ended is over, whatever the node says.
_BINDING_KINDS = {
    common_pb2.FINALIZE_REASON_TIMEOUT: pool_pb2.BINDING_KIND_TIMEOUT,
    common_pb2.FINALIZE_REASON_INTERRUPTED: pool_pb2.BINDING_KIND_TIMEOUT,
    common_pb2.FINALIZE_REASON_MAX_DURATION: pool_pb2.BINDING_KIND_MAX_DURATION,
    common_pb2.FINALIZE_REASON_MAX_LENGTH: pool_pb2.BINDING_KIND_MAX_DURATION,
}


def may_be_held(job: dispatcher_pb2.JobSpec) -> bool:
    """Whether a node may keep the audio of a job for the next one."""
    return job.reason in _BINDING_KINDS


class HeldAudio:
    """Binds turns to the nodes that hold their audio."""

    def __init__(self, *, settings: Settings, pool: PoolClient, metrics: DispatcherMetrics) -> None:
        self._settings = settings
        self._pool = pool
        self._metrics = metrics

    def take(self, stream: NodeStream, held: dispatcher_pb2.AudioHeld) -> None:
        """A node says that it holds the audio of an attempt."""
        key = attempt_key(held.attempt)
        assignment = stream.assigned.get(key)
        if assignment is not None:
            self._bind(stream, key, assignment.job)
        elif key in stream.brought:
            # It counts when the job's home asks for the attempt.
            stream.holds.add(key)
        # Otherwise the attempt is not this node's.

    def assigned(self, stream: NodeStream, key: AttemptKey, job: dispatcher_pb2.JobSpec) -> None:
        """A home has asked for an attempt: if the node has said that it holds its audio, binds."""
        if key in stream.holds:
            stream.holds.remove(key)
            self._bind(stream, key, job)

    def _bind(self, stream: NodeStream, key: AttemptKey, job: dispatcher_pb2.JobSpec) -> None:
        kind = _BINDING_KINDS.get(job.reason)
        if kind is None:
            self._metrics.held("not_cut")
            return
        bound = self._pool.persist(
            "bind_session",
            pool_pb2.BindSessionRequest(
                # The pool knows the turn from the job's record; the assignment does not name it.
                attempt=common_pb2.AttemptRef(job_id=key[0], attempt=key[1]),
                kind=kind,
                node_id=stream.node_id,
                cell=stream.cell,
            ),
            self._settings.binding_ttl_ms,
        )
        stream.binding[key] = bound
        bound.add_done_callback(partial(self._bound, stream, key))

    def _bound(self, stream: NodeStream, key: AttemptKey, bound: asyncio.Future[Any]) -> None:
        stream.binding.pop(key, None)
        answer = None if bound.cancelled() else bound.result()
        if answer is not None:
            limited = "limit" if answer.limit_reached else "late"
            self._metrics.held("bound" if answer.bound else limited)
