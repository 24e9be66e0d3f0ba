"""The shell around the protocol: streams, one timer, handlers. One event loop owns it all.

A node that is idle costs two tasks (a reader, which is the caller's own, and a writer), what gRPC
needs for a stream, and one timer handle. A thousand of them fit into a process.
"""

import asyncio
import contextlib
import functools
import logging
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

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
from lingua_scheduler.sdk._transport.stream_shell import FLUSH_S, StreamShell, is_going_away
from lingua_scheduler.sdk._transport.tokens import TokenSource
from lingua_scheduler.sdk.errors import JobError, NodeRefusedError
from lingua_scheduler.sdk.node import tracing
from lingua_scheduler.sdk.node.effects import NodeEffect, Start, Stop, Warn
from lingua_scheduler.sdk.node.handlers import Item
from lingua_scheduler.sdk.node.job import CancelFlag
from lingua_scheduler.sdk.node.protocol import NodeProtocol
from lingua_scheduler.sdk.node.stream import WELCOME_WITHIN_S
from lingua_scheduler.sdk.node.workers import Workers
from lingua_scheduler.sdk.results import Partial
from lingua_scheduler.statuses import reason_name
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, dispatcher_pb2_grpc

# A connection that lived so long was a good one: the next backoff starts small.
STABLE_S = 1.0
# Someone else has the node's id. That may be this node's past self, which is soon forgotten.
CONFLICT_WAIT_S = 5.0
# A dispatcher may ask for patience, but not for ever.
LONGEST_WAIT_S = 30.0
# After the last job, this long for dispatchers to confirm results.
CONFIRM_S = 5.0
# A load that is asked for more often would only cost time.
LOAD_EVERY_S = 1.0
# While no dispatcher can be reached, say so this often.
WARN_EVERY_S = 30.0

_FATAL = (
    common_pb2.ERROR_REASON_UNAUTHENTICATED,
    common_pb2.ERROR_REASON_PERMISSION_DENIED,
    common_pb2.ERROR_REASON_INVALID_MESSAGE,
)

_log = logging.getLogger("lingua_scheduler.sdk")


@dataclass(slots=True)
class _Execution:
    task: asyncio.Task[None]
    cancelled: CancelFlag


class Serving(StreamShell[dispatcher_pb2.NodeMessage, dispatcher_pb2.DispatcherMessage]):
    """One node, from its first stream to its last.

    Args:
        node_id: for logs.
        protocol: what to say.
        workers: where handlers run; closed at the end.
        addresses: of dispatchers, all alike.
        channels: connections to them.
        token: asked for before every stream.
        load: how busy the machine is, as (cpu, gpu).
        drain_seconds: what running jobs may take when the node is to stop.
        rng: chooses the first address, and the waits.
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
        super().__init__(
            name=f"node {node_id}", service="dispatcher", channels=channels, token=token
        )
        self._node_id = node_id
        self._protocol = protocol
        self._workers = workers
        self._addresses = addresses
        self._load = load
        self._load_at = -LOAD_EVERY_S
        self._drain_seconds = drain_seconds
        self._rng = rng
        self._backoff = Backoff(rng)
        self._executions: dict[int, _Execution] = {}
        self._done = asyncio.Event()
        self._draining: asyncio.Task[None] | None = None
        self._warned_at = -WARN_EVERY_S
        self._connected_to = ""

    # ---- the life of a node ----

    async def run(self) -> None:
        """Serves until it is drained. Raises NodeRefusedError."""
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

    def drain(self) -> None:
        """Takes nothing new, finishes what runs, says goodbye; then `run` returns."""
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
                _log.warning("node %s: %d results unconfirmed", self._node_id, protocol.unconfirmed)
        finally:
            # Whatever happened: whoever waits for the end must not wait for ever.
            self._done.set()
            self._do(protocol.leave("the node stops"))
            self.wake()

    async def _until(self, condition: Callable[[], bool], seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._done.wait()

    async def _clean_up(self) -> None:
        self._stop_timer()
        if self._draining is not None:
            self._draining.cancel()
        executions = list(self._executions.values())
        for execution in executions:
            execution.cancelled.set()
            execution.task.cancel()
        if executions:
            # Those that ignore their cancellation are left behind.
            await asyncio.wait([execution.task for execution in executions], timeout=FLUSH_S)
        self._workers.close()

    def _next_wait(self, address: str, ending: Lost | Moved | Refused | Expired) -> float:
        """Logs why a stream ended, and gives the seconds until the next; or raises."""
        if isinstance(ending, Moved):
            _log.info("node %s: %s asks to connect elsewhere", self._node_id, address)
            return min(ending.after, LONGEST_WAIT_S)
        wait = self._backoff.next()
        if isinstance(ending, Expired):
            _log.info("node %s: its token expired: %s", self._node_id, ending.why)
            return wait
        if isinstance(ending, Lost):
            self._warn_rarely(f"no connection to {address}: {ending.why}")
            return wait
        error = ending.error
        reason = reason_name(error.reason)
        if error.reason in _FATAL:
            raise NodeRefusedError(reason, error.message or f"said {address}")
        asked = min(error.retry_after_ms / 1000, LONGEST_WAIT_S)
        if error.reason == common_pb2.ERROR_REASON_NODE_ID_CONFLICT:
            _log.error(
                "node %s: another live node has this id; give each node its own, or wait until"
                " the other is gone. Trying again every %g s",
                self._node_id,
                CONFLICT_WAIT_S,
            )
            return max(CONFLICT_WAIT_S, asked)
        self._warn_rarely(f"{address} refused: {reason}: {error.message}")
        return max(wait, asked)

    def _warn_rarely(self, text: str) -> None:
        now = self._loop.time()
        rare = now - self._warned_at >= WARN_EVERY_S
        self._warned_at = now if rare else self._warned_at
        _log.log(logging.WARNING if rare else logging.DEBUG, "node %s: %s", self._node_id, text)

    # ---- one stream ----

    async def _stream(self, address: str) -> Ending:
        dialled = await self._dial(address, WELCOME_WITHIN_S)
        return await self._connect(dialled) if isinstance(dialled, Lease) else dialled

    async def _connect(self, lease: Lease) -> Ending:
        call = dispatcher_pb2_grpc.DispatcherStub(lease.channel).Connect(metadata=self._metadata)
        self._sample_load()
        self._connected_to = lease.address
        opened = self._loop.time()
        self._protocol.on_connected(opened)
        writer = self._begin(call)
        ending: Ending = Lost("the stream ended")
        try:
            ending = await self._read(call)
        finally:
            good = self._protocol.welcomed
            if good and self._loop.time() - opened >= STABLE_S:
                self._backoff.reset()
            self._call = None
            self._protocol.on_disconnected()
            writer.cancel()
            call.cancel()
            await self._channels.release(lease, renew=is_going_away(ending))
        return self._token.judge(ending, good=good)

    def _take(self) -> dispatcher_pb2.NodeMessage | None:
        return self._protocol.take(self._loop.time())

    def _hear(self, message: dispatcher_pb2.DispatcherMessage) -> None:
        knew = self._protocol.welcomed
        self._do(self._protocol.on_message(self._loop.time(), message))
        if self._protocol.welcomed and not knew:
            self._warned_at = -WARN_EVERY_S
            _log.info("node %s: connected to %s", self._node_id, self._connected_to)
        self.wake()

    def _said_ending(self) -> Ending:
        return self._protocol.ending(self._loop.time())

    def _next_deadline(self) -> float | None:
        return self._protocol.next_deadline(self._loop.time())

    def _on_due(self) -> None:
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
            _log.exception("node %s: its load function failed", self._node_id)

    # ---- handlers ----

    def _do(self, effects: Iterable[NodeEffect]) -> None:
        for effect in effects:
            match effect:
                case Start():
                    self._start(effect.run, effect.assign)
                case Stop():
                    self._stop(effect.run, effect.why)
                case Close():
                    self._close(effect)
                case Warn():
                    _log.warning("node %s: %s", self._node_id, effect.text)

    def _start(self, run: int, assign: dispatcher_pb2.JobAssign) -> None:
        cancelled = self._workers.flag()
        task = self._loop.create_task(self._execute(run, assign, cancelled))
        self._executions[run] = _Execution(task, cancelled)
        # Not at the end of the task: one that is cancelled early never begins.
        task.add_done_callback(lambda _: self._ended(run))

    def _stop(self, run: int, why: str) -> None:
        execution = self._executions.get(run)
        if execution is not None:
            _log.info("node %s: a job was cancelled: %s", self._node_id, why)
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
                    _log.exception("node %s: handler of %s/%d", self._node_id, job_id, attempt)
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
            _log.warning("node %s: a result cannot be sent: %s", self._node_id, error)
            self._fail(run, "HANDLER_ERROR", f"{type(error).__name__}: {error}")
        self.wake()

    def _fail(self, run: int, cause: str, detail: str, *, worth_retry: bool = True) -> None:
        self._do(self._protocol.on_failed(run, cause, detail, worth_retry=worth_retry))
        self.wake()


def _share(value: float) -> float:
    # What is not a number fails both comparisons.
    return value if 0.0 <= value <= 1.0 else 1.0 if value > 1.0 else 0.0
