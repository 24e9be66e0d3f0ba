"""Runs a node's protocol over streams, with one timer and its handlers, in one event loop.

An idle node costs two tasks (a reader, which is the caller's own, and a writer), what gRPC needs
for a stream, and one timer handle. A thousand of them fit into a process.
"""

import asyncio
import contextlib
import functools
import logging
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import grpc

from lingua_scheduler.sdk._transport.backoff import Backoff
from lingua_scheduler.sdk._transport.channels import Channels, Lease
from lingua_scheduler.sdk._transport.endings import (
    Close,
    Ending,
    Expired,
    Left,
    Lost,
    Moved,
    Refused,
)
from lingua_scheduler.sdk._transport.log import log
from lingua_scheduler.sdk._transport.stream_runner import FLUSH_S, Metadata, StreamRunner
from lingua_scheduler.sdk._transport.tokens import TokenSource
from lingua_scheduler.sdk.errors import JobError, NodeRefusedError
from lingua_scheduler.sdk.node import tracing
from lingua_scheduler.sdk.node.handlers import Item
from lingua_scheduler.sdk.node.job import CancelFlag
from lingua_scheduler.sdk.node.protocol.effects import NodeEffect, Start, Stop, Warn
from lingua_scheduler.sdk.node.protocol.machine import NodeProtocol
from lingua_scheduler.sdk.node.protocol.stream import WELCOME_WITHIN_S
from lingua_scheduler.sdk.node.workers import Workers
from lingua_scheduler.sdk.results import Partial
from lingua_scheduler.statuses import reason_name
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, dispatcher_pb2_grpc

# After a connection that lasted this long, the next backoff starts small.
STABLE_S = 1.0
# How long to wait if another node has this id. It may be this node's own previous connection, which
# the dispatcher soon forgets.
CONFLICT_WAIT_S = 5.0
# The longest wait that a dispatcher can ask for.
LONGEST_WAIT_S = 30.0
# How long a stopping node waits for its last results to be confirmed.
CONFIRM_S = 5.0
# The load is sampled at most this often.
LOAD_EVERY_S = 1.0
# While no dispatcher can be reached, a warning is logged this often.
WARN_EVERY_S = 30.0

_FATAL = (
    common_pb2.ERROR_REASON_UNAUTHENTICATED,
    common_pb2.ERROR_REASON_PERMISSION_DENIED,
    common_pb2.ERROR_REASON_INVALID_MESSAGE,
)


@dataclass(slots=True)
class _Execution:
    task: asyncio.Task[None]
    cancelled: CancelFlag
    job_id: str
    attempt: int


class Serving:
    """Carries a node from its first stream to its last.

    Args:
        node_id: for logs.
        protocol: decides what to send.
        workers: run the handlers; closed at the end.
        addresses: the addresses of equivalent dispatchers.
        channels: connections to them.
        token: asked before every stream.
        load: returns how busy the machine is, as (cpu, gpu).
        drain_seconds: how long running jobs may take when the node is stopped.
        rng: chooses the first address and randomizes waits.
    """

    def __init__(
        self,
        *,
        node_id: str,
        protocol: NodeProtocol,
        workers: Workers,
        addresses: Sequence[str],
        channels: Channels,
        token: TokenSource,
        load: Callable[[], tuple[float, float]],
        drain_seconds: float,
        rng: random.Random,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._streams: StreamRunner[dispatcher_pb2.NodeMessage, dispatcher_pb2.DispatcherMessage]
        self._streams = StreamRunner(
            speaker=self,
            name=f"node {node_id}",
            service="dispatcher",
            channels=channels,
            token=token,
        )
        self._token = token
        self._node_id = node_id
        self._protocol = protocol
        self._workers = workers
        self._addresses = addresses
        self._load = load
        self._load_at = -LOAD_EVERY_S
        self._drain_seconds = drain_seconds
        self._rng = rng
        self._backoff = Backoff(rng)
        # A dispatcher that sends the node elsewhere is obeyed at once, but not again and again.
        self._may_move_at_once = True
        self._executions: dict[int, _Execution] = {}
        self._done = asyncio.Event()
        self._draining: asyncio.Task[None] | None = None
        self._warned_at = -WARN_EVERY_S
        self._connected_to = ""

    # ---- the life of a node ----

    async def run(self) -> None:
        """Returns when the node is drained. Raises NodeRefusedError."""
        at = self._rng.randrange(len(self._addresses))
        try:
            while not self._done.is_set():
                address = self._addresses[at % len(self._addresses)]
                ending = await self._stream(address)
                if isinstance(ending, Left):
                    return
                await self._pause(self._next_wait(address, ending))
                at += 1
        finally:
            await self._clean_up()

    def wake(self) -> None:
        """There may be something to write."""
        self._streams.wake()

    def drain(self) -> None:
        """Rejects new jobs, finishes running ones, and says goodbye. Then `run` returns."""
        if self._draining is None:
            self._draining = self._loop.create_task(self._drain())

    async def _drain(self) -> None:
        protocol = self._protocol
        try:
            protocol.drain()
            self.wake()
            await self._until(lambda: protocol.executing == 0, self._drain_seconds)
            self._do(protocol.give_up())
            self.wake()
            await self._until(lambda: protocol.unconfirmed == 0, CONFIRM_S)
            if protocol.unconfirmed:
                self._log(
                    logging.WARNING,
                    "node stopped with unconfirmed results",
                    results=protocol.unconfirmed,
                )
        finally:
            # In any case: nobody may wait for the end forever.
            self._done.set()
            self._do(protocol.leave("the node stops"))
            self.wake()

    async def _until(self, condition: Callable[[], bool], seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._streams.until(condition)

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._done.wait()

    async def _clean_up(self) -> None:
        self._streams.stop_timer()
        if self._draining is not None:
            self._draining.cancel()
        executions = list(self._executions.values())
        for execution in executions:
            execution.cancelled.set()
            execution.task.cancel()
        if executions:
            # Handlers that ignore their cancellation are left behind.
            await asyncio.wait([execution.task for execution in executions], timeout=FLUSH_S)
        self._workers.close()

    def _next_wait(self, address: str, ending: Lost | Moved | Refused | Expired) -> float:
        """Logs why a stream ended and returns the seconds until the next. May raise instead."""
        if isinstance(ending, Moved):
            self._log(logging.INFO, "reconnect requested", address=address, reason=ending.why)
            at_once, self._may_move_at_once = self._may_move_at_once, False
            asked = min(ending.after, LONGEST_WAIT_S)
            return asked if at_once else max(asked, self._backoff.next())
        wait = self._backoff.next()
        if isinstance(ending, Expired):
            self._log(logging.INFO, "token expired", address=address, reason=ending.why)
            return wait
        if isinstance(ending, Lost):
            self._warn_rarely("connection lost", address=address, reason=ending.why)
            return wait
        error = ending.error
        reason = reason_name(error.reason)
        if error.reason in _FATAL:
            raise NodeRefusedError(reason, error.message or f"said {address}")
        asked = min(error.retry_after_ms / 1000, LONGEST_WAIT_S)
        if error.reason == common_pb2.ERROR_REASON_NODE_ID_CONFLICT:
            wait = max(CONFLICT_WAIT_S, asked)
            hint = "another live node has this id; give each node its own, or stop the other"
            self._log(
                logging.ERROR, "node id conflict", address=address, hint=hint, retry_after_s=wait
            )
            return wait
        self._warn_rarely(
            "connection refused", address=address, reason=reason, detail=error.message
        )
        return max(wait, asked)

    def _warn_rarely(self, event: str, **fields: str) -> None:
        now = self._loop.time()
        rare = now - self._warned_at >= WARN_EVERY_S
        self._warned_at = now if rare else self._warned_at
        self._log(logging.WARNING if rare else logging.DEBUG, event, **fields)

    def _log(self, level: int, event: str, **fields: object) -> None:
        log.log(level, event, extra={"node_id": self._node_id, **fields})

    # ---- one stream ----

    async def _stream(self, address: str) -> Ending:
        dialled = await self._streams.dial(address, WELCOME_WITHIN_S)
        return await self._connect(dialled) if isinstance(dialled, Lease) else dialled

    async def _connect(self, lease: Lease) -> Ending:
        self._sample_load()
        self._connected_to = lease.address
        opened = self._loop.time()
        good = False

        def on_ended() -> None:
            nonlocal good
            good = self._protocol.welcomed
            if good and self._loop.time() - opened >= STABLE_S:
                self._backoff.reset()
                self._may_move_at_once = True
            self._protocol.on_disconnected()

        self._protocol.on_connected(opened)
        ending = await self._streams.run(lease, _open_stream, on_ended=on_ended)
        return self._token.judge(ending, good=good)

    # ---- what the streams ask ----

    def take(self) -> dispatcher_pb2.NodeMessage | None:
        """See Speaker."""
        return self._protocol.take(self._loop.time())

    def hear(self, message: dispatcher_pb2.DispatcherMessage) -> None:
        """See Speaker."""
        knew = self._protocol.welcomed
        self._do(self._protocol.on_message(self._loop.time(), message))
        if self._protocol.welcomed and not knew:
            self._warned_at = -WARN_EVERY_S
            self._log(logging.INFO, "connected to dispatcher", address=self._connected_to)
        self.wake()

    def ending(self) -> Ending:
        """See Speaker."""
        return self._protocol.ending(self._loop.time())

    def next_deadline(self) -> float | None:
        """See Speaker."""
        return self._protocol.next_deadline(self._loop.time())

    def on_due(self) -> None:
        """See Speaker."""
        self._sample_load()
        self._do(self._protocol.on_timer(self._loop.time()))

    def _sample_load(self) -> None:
        now = self._loop.time()
        if now - self._load_at < LOAD_EVERY_S:
            return
        self._load_at = now
        try:
            cpu, gpu = self._load()
            self._protocol.load = common_pb2.NodeLoad(cpu=_share(cpu), gpu=_share(gpu))
        except Exception:
            log.exception("load function failed", extra={"node_id": self._node_id})

    # ---- handlers ----

    def _do(self, effects: Iterable[NodeEffect]) -> None:
        for effect in effects:
            match effect:
                case Start():
                    self._start(effect.run, effect.assign)
                case Stop():
                    self._stop(effect.run, effect.why)
                case Close():
                    self._streams.close(effect)
                case Warn():
                    self._log(logging.WARNING, effect.event, **effect.fields)

    def _start(self, run: int, assign: dispatcher_pb2.JobAssign) -> None:
        cancelled = self._workers.flag()
        task = self._loop.create_task(self._execute(run, assign, cancelled))
        ref = assign.attempt
        self._executions[run] = _Execution(task, cancelled, ref.job_id, ref.attempt)
        # Not at the end of the coroutine: a task that is cancelled early never begins it.
        task.add_done_callback(lambda _: self._ended(run))

    def _stop(self, run: int, why: str) -> None:
        execution = self._executions.get(run)
        if execution is not None:
            self._log(
                logging.INFO,
                "job cancelled",
                job_id=execution.job_id,
                attempt=execution.attempt,
                reason=why,
            )
            execution.cancelled.set()
            if self._workers.cancellable:
                execution.task.cancel()

    def _ended(self, run: int) -> None:
        del self._executions[run]
        self._do(self._protocol.on_ended(run))
        self.wake()

    async def _execute(
        self, run: int, assign: dispatcher_pb2.JobAssign, cancelled: CancelFlag
    ) -> None:
        job_id, attempt = assign.attempt.job_id, assign.attempt.attempt
        attributes: dict[str, str | int] = {
            "lingua.node_id": self._node_id,
            "lingua.job_id": job_id,
            "lingua.attempt": attempt,
            "lingua.session_id": assign.job.session_id,
            "lingua.utterance_index": assign.job.utterance_index,
        }
        job = assign.job
        with tracing.node_span(job.job_type, job.traceparent, attributes) as span:
            try:
                await self._workers.work(assign, cancelled, functools.partial(self._say, run))
            except JobError as error:
                tracing.mark_failed(span, error.cause)
                self._fail(run, error.cause, error.detail, worth_retry=error.worth_retry)
            except Exception as error:
                tracing.mark_failed(span, type(error).__name__)
                if not cancelled:
                    fields = {"node_id": self._node_id, "job_id": job_id, "attempt": attempt}
                    log.exception("handler failed", extra=fields)
                self._fail(run, "HANDLER_ERROR", f"{type(error).__name__}: {error}")

    def _say(self, run: int, item: Item | None) -> None:
        try:
            if item is None:
                self._protocol.on_hold(run)
            elif isinstance(item, Partial):
                self._protocol.on_partial(run, item)
            else:
                self._do(self._protocol.on_result(run, item))
        except (TypeError, ValueError) as error:
            # A value that no message can carry, such as a negative time.
            self._log(logging.WARNING, "invalid result from handler", reason=str(error))
            self._fail(run, "HANDLER_ERROR", f"{type(error).__name__}: {error}")
        self.wake()

    def _fail(self, run: int, cause: str, detail: str, *, worth_retry: bool = True) -> None:
        self._do(self._protocol.on_failed(run, cause, detail, worth_retry=worth_retry))
        self.wake()


def _open_stream(channel: grpc.aio.Channel, metadata: Metadata) -> Any:
    return dispatcher_pb2_grpc.DispatcherStub(channel).Connect(metadata=metadata)


def _share(value: float) -> float:
    # NaN fails both comparisons.
    return value if 0.0 <= value <= 1.0 else 1.0 if value > 1.0 else 0.0
