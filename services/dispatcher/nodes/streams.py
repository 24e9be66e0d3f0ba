"""All nodes that are connected here: who comes, who goes, and what passes between.

A node is in from the moment the pool service has registered it until its stream ends, falls
silent, or a newer connection of the same node takes its place. What it was given stays with the
responsible: a node that comes back in time, here or elsewhere, keeps its jobs.
"""

import asyncio
import logging
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import grpc

from lingua_scheduler.services.dispatcher.metrics import DispatcherMetrics
from lingua_scheduler.services.dispatcher.nodes.checks import first_message
from lingua_scheduler.services.dispatcher.nodes.reports import failure_of
from lingua_scheduler.services.dispatcher.nodes.responsible import Report, Responsible
from lingua_scheduler.services.dispatcher.nodes.stream import (
    MAX_BYTES,
    MAX_EVENTS,
    Assignment,
    AttemptKey,
    NodeStream,
    attempt_key,
)
from lingua_scheduler.services.dispatcher.pool.client import PoolClient
from lingua_scheduler.services.runtime import errors
from lingua_scheduler.services.runtime.auth.principals import node_owner
from lingua_scheduler.services.runtime.contract import limits
from lingua_scheduler.services.runtime.contract.capabilities import Capabilities
from lingua_scheduler.services.runtime.give_way import is_turn_of_others
from lingua_scheduler.services.runtime.rpc.duplex import run_duplex
from lingua_scheduler.services.runtime.rpc.message_sizes import batch_bytes
from lingua_scheduler.services.runtime.rpc.outbox import Outbox
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.services.runtime.timers import now_ms
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, pool_pb2

_log = logging.getLogger(__name__)

# What one heartbeat call renews: nodes, and bytes of what they say they run.
_BEATS_A_CALL = 1000
_BEATS_BYTES = 512 * 1024
_SILENT_BEATS = 3
# A pool service that does not answer in this time is down; a result must not wait for it.
_BOUND_WITHIN_S = 1.0
# That a result is safe is told with the next job, if that comes soon: no node waits for it.
_CONFIRM_WITHIN_S = 0.1

# Jobs whose audio a node may hold for the next one, by how their speech ended, and what that binds.
# A sentence that its speaker has ended is over, whatever the node says.
_BINDING_KINDS = {
    common_pb2.FINALIZE_REASON_TIMEOUT: pool_pb2.BINDING_KIND_TIMEOUT,
    common_pb2.FINALIZE_REASON_INTERRUPTED: pool_pb2.BINDING_KIND_TIMEOUT,
    common_pb2.FINALIZE_REASON_MAX_DURATION: pool_pb2.BINDING_KIND_MAX_DURATION,
    common_pb2.FINALIZE_REASON_MAX_LENGTH: pool_pb2.BINDING_KIND_MAX_DURATION,
}

Context = grpc.aio.ServicerContext[Any, Any]

_GO_ELSEWHERE = dispatcher_pb2.Reconnect(why="this dispatcher is draining")


class NodeStreams:
    """The Connect side of the dispatcher.

    Args:
        on_room: called with the names of pools that a node serves when a slot on it may be free.
        on_connected: called when a node is in, with where it is and what it says it still has.
        fallback: hears of attempts that nobody else answers for.
        unwanted: of what a node says it has, what it should drop.
    """

    def __init__(
        self,
        *,
        settings: Settings,
        pool: PoolClient,
        metrics: DispatcherMetrics,
        address: Callable[[], str],
        on_room: Callable[[frozenset[str]], None],
        on_connected: Callable[[pool_pb2.Placement, Iterable[common_pb2.AttemptRef]], None],
        fallback: Responsible,
        unwanted: Callable[[Iterable[common_pb2.AttemptRef]], Iterable[common_pb2.AttemptRef]],
    ) -> None:
        self._settings = settings
        self._pool = pool
        self._metrics = metrics
        self._address = address
        self._on_room = on_room
        self._on_connected = on_connected
        self._fallback = fallback
        self._unwanted = unwanted
        self._streams: dict[str, NodeStream] = {}
        # Nodes that the pool may know to be here already, but that cannot be given anything yet.
        self._admitting: Counter[str] = Counter()
        # By stream: attempts that its node brought along and whose audio it holds, until their
        # homes ask for them.
        self._holds: set[tuple[str, AttemptKey]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._draining = False
        self._last_has_gone = asyncio.Event()

    # ---- what the rest of the dispatcher asks for ----

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
                return "the node is only just connecting here"
            # The pool does not know that yet, or it would not have chosen the node.
            self._pool.take_offline(node_id, epoch)
            return "the node is not connected here"
        if epoch and stream.epoch != epoch:
            return "the node has connected anew"
        assign = message.events[0].job_assign
        key = attempt_key(assign.attempt)
        if not assign.only_if_known and stream.is_full and not stream.has(key):
            return "the node has as much as it can hold"
        assignment = Assignment(assign.job, responsible, has_slot=not assign.only_if_known)
        if not self._send(stream, message, assignment=assignment):
            return "the node does not read what it is sent"
        stream.assigned[key] = assignment
        if (stream.stream_id, key) in self._holds:
            self._holds.remove((stream.stream_id, key))
            self._bind(stream, key, assign.job)
        return ""

    def cancel(self, node_id: str, cancel: dispatcher_pb2.JobCancel) -> None:
        """Tells a node to stop an attempt, if it is here."""
        stream = self._streams.get(node_id)
        if stream is not None:
            stream.drop(attempt_key(cancel.attempt))
            self._send(stream, _message(job_cancel=cancel))

    def confirm(self, node_id: str, attempt: common_pb2.AttemptRef) -> None:
        """Tells a node that it may forget a result, if it is here."""
        stream = self._streams.get(node_id)
        if stream is not None:
            message = dispatcher_pb2.DispatcherMessage()
            message.events.add().result_received.attempt.CopyFrom(attempt)
            self._send(stream, message, within_s=_CONFIRM_WITHIN_S)

    def abandon(self, responsible: Responsible) -> None:
        """Whoever answered for these attempts is gone. The node goes on; a new home will ask."""
        for stream in self._streams.values():
            for assignment in stream.assigned.values():
                if assignment.responsible is responsible:
                    assignment.responsible = None

    def serves(self, node_id: str) -> frozenset[str]:
        """The pools that a node is in; none of a node that is not connected here."""
        stream = self._streams.get(node_id)
        return stream.serves if stream is not None else frozenset()

    def __len__(self) -> int:
        return len(self._streams)

    def __contains__(self, node_id: str) -> bool:
        return node_id in self._streams

    async def drain(self) -> None:
        """Tells every node to connect elsewhere, and waits until they have gone."""
        self._draining = True
        for stream in self._streams.values():
            self._send(stream, _message(reconnect=_GO_ELSEWHERE))
        if self._streams:
            await self._last_has_gone.wait()

    def _send(
        self,
        stream: NodeStream,
        message: dispatcher_pb2.DispatcherMessage,
        *,
        assignment: Assignment | None = None,
        within_s: float = 0.0,
    ) -> bool:
        """Queues a message. A node for which too much waits already is let go: it may come anew."""
        data = message.SerializeToString()
        if stream.outbox.put((data, assignment), len(data), within_s=within_s):
            return True
        if not stream.outbox.closed:
            self._metrics.backpressure.labels("node").inc()
            _log.warning("node does not read what it is sent", extra={"node_id": stream.node_id})
            stream.end(errors.BackpressureError("the node does not read what it is sent"))
            # Later: whoever asks is in the middle of something.
            asyncio.get_running_loop().call_soon(self._gone, stream)
        return False

    # ---- a node's stream ----

    async def connect(
        self, messages: AsyncIterator[dispatcher_pb2.NodeMessage], context: Context
    ) -> None:
        """Serves one stream from Hello to its end."""
        stream: NodeStream | None = None
        try:
            first = await first_message(messages)
            stream = await self._admit(first)
            # The writer ends when the outbox was closed: replaced, or silent for too long.
            await run_duplex(
                read=self._read(stream, first, messages),
                write=self._write(stream, context),
                cut=stream.cut,
            )
        except errors.LinguaError as error:
            # The same is said twice: nodes may look for it here or in the status.
            await context.write(_message(error=errors.to_proto(error)))
            raise
        finally:
            if stream is not None:
                self._holds = {held for held in self._holds if held[0] != stream.stream_id}
                self._gone(stream)
                stream.outbox.close()
        if stream.ended_for is not None:
            why, stream.ended_for = stream.ended_for, None
            try:
                raise why
            finally:
                del why  # its traceback holds this frame

    async def _admit(self, first: dispatcher_pb2.NodeMessage) -> NodeStream:
        if self._draining:
            raise errors.DrainingError("this dispatcher is draining; connect elsewhere")
        hello = first.events[0].hello
        limits.check(hello)
        stream = NodeStream(
            hello=hello,
            stream_id=secrets.token_hex(8),
            heard_ms=now_ms(),
            outbox=Outbox(
                max_events=MAX_EVENTS,
                max_bytes=MAX_BYTES,
                max_take_bytes=batch_bytes(self._settings.max_message_bytes),
            ),
            serves=frozenset(),
            assigned={},
            owner=node_owner(),
        )
        self._admitting[stream.node_id] += 1
        try:
            registered = await self._pool.register_node(self._registration(stream))
            stream.epoch, pools = registered.epoch, registered.pools
            stream.runs(hello.running)
            stream.load = hello.load
            refused = await self._not_renewed(stream) if hello.running else []
            stream.serves = frozenset(Capabilities.of(hello.capabilities).pools())
            self._take_over(stream)
        finally:
            self._admitting -= Counter((stream.node_id,))
        placement = pool_pb2.Placement(
            node_id=stream.node_id,
            node_epoch=stream.epoch,
            owner_instance=self._settings.instance_id,
            owner_address=self._address(),
        )
        welcome = dispatcher_pb2.Welcome(
            epoch=stream.epoch,
            instance_id=self._settings.instance_id,
            heartbeat_interval_ms=self._settings.node_heartbeat_ms,
            max_message_bytes=self._settings.max_message_bytes,
            silence_ms=self._settings.peer_silence_ms,
            pools=pools,
            cancelled=[*self._unwanted([*hello.running, *hello.unconfirmed]), *refused],
        )
        for attempt in welcome.cancelled:
            stream.drop(attempt_key(attempt))
        self._send(stream, _message(welcome=welcome))
        if self._draining:  # since it was let in
            self._send(stream, _message(reconnect=_GO_ELSEWHERE))
        self._metrics.nodes.set(len(self._streams))
        _log.info("node connected", extra={"node_id": stream.node_id, "pools": pools})
        if not pools:
            _log.warning(
                "node is in no pool, so it gets no jobs: its languages do not fit together",
                extra={"node_id": stream.node_id},
            )
        self._on_connected(placement, [*hello.running, *hello.unconfirmed])
        self._on_room(stream.serves)
        return stream

    async def _not_renewed(self, stream: NodeStream) -> list[common_pb2.AttemptRef]:
        """Of what a node says it runs: attempts that have no slot, and that it has to stop.

        Asked before it can be given anything: what it runs without a slot would be one too many.
        """
        request = pool_pb2.HeartbeatRequest(beats=[stream.beat()])
        try:
            answer = await self._pool.heartbeat(request)
        except errors.LinguaError as error:
            _log.warning("the running attempts of a node were not renewed: %s", error)
            return []
        refused = pool_pb2.BeatProblem.KIND_NOT_RENEWED
        return [
            each for found in answer.problems if found.kind == refused for each in found.attempts
        ]

    def _take_over(self, stream: NodeStream) -> None:
        """The new connection takes the old one's place, and what it still has of its attempts."""
        old = self._streams.get(stream.node_id)
        if old is not None and old.epoch > stream.epoch:
            raise errors.NodeEpochOldError("a newer connection of this node was faster")
        self._streams[stream.node_id] = stream
        if old is None:
            return
        for key, assignment in old.assigned.items():
            if key in stream.brought:
                stream.assigned[key] = assignment
            else:
                self._tell_lost(stream.node_id, key, assignment)
        old.assigned.clear()
        self._end(old, errors.NodeEpochOldError("a newer connection of this node has taken over"))

    def _end(self, stream: NodeStream, error: errors.LinguaError) -> None:
        """Ends a stream with an error, as its last message and as its status."""
        self._send(stream, _message(error=errors.to_proto(error)))
        stream.end(error)

    async def _write(self, stream: NodeStream, context: Context) -> None:
        while written := await stream.outbox.take():
            await context.write(b"".join([data for data, _ in written]))
            now_us = time.time_ns() // 1000
            for _, assignment in written:
                if assignment is not None:
                    assignment.sent_us = now_us

    async def _read(
        self,
        stream: NodeStream,
        first: dispatcher_pb2.NodeMessage,
        messages: AsyncIterator[dispatcher_pb2.NodeMessage],
    ) -> None:
        await self._take_all(stream, first.events[1:])
        async for message in messages:
            stream.heard_ms = now_ms()
            await self._take_all(stream, message.events)
            if stream.said_bye:
                return

    async def _take_all(
        self, stream: NodeStream, events: Sequence[dispatcher_pb2.NodeEvent]
    ) -> None:
        for at, event in enumerate(events):
            if is_turn_of_others(at):
                await asyncio.sleep(0)
            self._take(stream, event)

    def _take(self, stream: NodeStream, event: dispatcher_pb2.NodeEvent) -> None:
        kind = event.WhichOneof("event")
        match kind:
            case "heartbeat":
                self._take_beat(stream, event.heartbeat)
            case "job_ack" | "job_reject" | "job_partial" | "job_result" | "job_failed":
                report: Report = getattr(event, kind)
                if (failed := failure_of(kind, report)) is not None:
                    self._take_invalid(stream, kind, failed)
                else:
                    self._take_report(stream, kind, report)
            case "audio_held":
                if (failed := failure_of(kind, event.audio_held)) is not None:
                    self._take_invalid(stream, kind, failed)
                else:
                    self._take_held(stream, event.audio_held)
            case "bye":
                stream.said_bye = True
            case _:
                raise errors.InvalidMessageError(
                    f"events: {kind or 'an empty event'} is not expected here",
                    fields=[("events", "an unknown, empty or repeated first event")],
                )

    def _take_beat(self, stream: NodeStream, beat: dispatcher_pb2.Heartbeat) -> None:
        # One bad beat would have the whole batch refused, and with it those of all other nodes.
        limits.check(beat, "heartbeat.")
        stream.heard_beat(beat)
        reply = dispatcher_pb2.DispatcherMessage()
        reply.events.add().heartbeat_reply.seq = beat.seq
        self._send(stream, reply)

    def _take_report(self, stream: NodeStream, kind: str, report: Report) -> None:
        key = attempt_key(report.attempt)
        if kind == "job_result" and key in stream.binding:
            self._spawn(self._take_when_bound(stream, report, stream.binding[key]))
            return
        assignment = stream.assigned.get(key)
        if kind == "job_partial" and not (assignment and assignment.takes_partial(now_ms())):
            self._metrics.partials_dropped.inc()
            return
        if type(report) is dispatcher_pb2.JobAck:
            report.sent_us = assignment.sent_us if assignment else 0
            if assignment:
                # Its heartbeat may have been on the way before it had this.
                assignment.has_slot, assignment.beats_without = True, 0
        elif kind in ("job_reject", "job_result", "job_failed"):
            stream.drop(key)
        # What nobody here answers for may still be a job of ours that is over; else it stays
        # unconfirmed, and whoever takes the job up will ask for it.
        responsible = assignment.responsible if assignment else None
        (responsible or self._fallback).on_report(stream.node_id, report)

    def _take_invalid(
        self, stream: NodeStream, kind: str, failed: dispatcher_pb2.JobFailed
    ) -> None:
        """A report is over a limit: its attempt fails, and the node is told why."""
        self._metrics.invalid_reports.labels(kind).inc()
        # Of other attempts a node may say what it wants.
        if attempt_key(failed.attempt) in stream.assigned:
            facts = {"node_id": stream.node_id, "job_id": failed.attempt.job_id}
            _log.warning("node broke the contract: %s", failed.detail, extra=facts)
            cancel = dispatcher_pb2.JobCancel(attempt=failed.attempt, why=failed.detail)
            self._send(stream, _message(job_cancel=cancel))
        self._take_report(stream, "job_failed", failed)

    async def _take_when_bound(
        self, stream: NodeStream, result: Report, bound: asyncio.Future[Any]
    ) -> None:
        """Who has the result HELD may submit what follows, and that has to find the binding."""
        await asyncio.wait((bound,), timeout=_BOUND_WITHIN_S)
        stream.binding.pop(attempt_key(result.attempt), None)
        self._take_report(stream, "job_result", result)

    def _take_held(self, stream: NodeStream, held: dispatcher_pb2.AudioHeld) -> None:
        key = attempt_key(held.attempt)
        assignment = stream.assigned.get(key)
        if assignment is not None:
            self._bind(stream, key, assignment.job)
        elif key in stream.brought:
            # It counts when the job's home asks for the attempt.
            self._holds.add((stream.stream_id, key))
        # Else it is not this node's to say.

    def _bind(self, stream: NodeStream, key: AttemptKey, job: dispatcher_pb2.JobSpec) -> None:
        kind = _BINDING_KINDS.get(job.reason)
        if kind is None:
            self._metrics.held("not_cut")
            return
        bound = self._pool.persist(
            "bind_session",
            pool_pb2.BindSessionRequest(
                # Whose turn that is, the job's record tells: the assignment does not.
                attempt=common_pb2.AttemptRef(job_id=key[0], attempt=key[1]),
                kind=kind,
                node_id=stream.node_id,
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

    def _gone(self, stream: NodeStream) -> None:
        """The stream has ended: out of selection at once, and everybody concerned is told."""
        if self._streams.get(stream.node_id) is not stream:
            return
        del self._streams[stream.node_id]
        self._metrics.nodes.set(len(self._streams))
        if self._draining and not self._streams:
            self._last_has_gone.set()
        _log.info("node disconnected", extra={"node_id": stream.node_id})
        for key, assignment in stream.assigned.items():
            self._tell_lost(stream.node_id, key, assignment)
        if stream.said_bye:
            self._spawn(self._remove(stream))
        else:
            self._pool.take_offline(stream.node_id, stream.epoch)

    async def _remove(self, stream: NodeStream) -> None:
        request = pool_pb2.RemoveNodeRequest(node_id=stream.node_id, epoch=stream.epoch)
        try:
            await self._pool.remove_node(request)
        except errors.LinguaError as error:
            _log.info("node was not removed: %s", error, extra={"node_id": stream.node_id})

    @staticmethod
    def _tell_lost(node_id: str, key: tuple[str, int], assignment: Assignment) -> None:
        if assignment.responsible is not None:
            attempt = common_pb2.AttemptRef(job_id=key[0], attempt=key[1])
            assignment.responsible.on_lost(node_id, attempt)

    # ---- heartbeats ----

    async def run(self) -> None:
        """Sends batches of heartbeats, and lets go of nodes that fell silent, until cancelled."""
        interval = self._settings.heartbeat_batch_ms / 1000
        while True:
            await asyncio.sleep(interval)
            self._let_go_of_silent()
            due = [stream for stream in self._streams.values() if stream.beat_due]
            for request in _batches(due):
                await self._beat(request)

    async def _beat(self, request: pool_pb2.HeartbeatRequest) -> None:
        try:
            answer = await self._pool.heartbeat(request)
        except errors.LinguaError as error:
            _log.warning("heartbeats were not taken: %s", error)
            return
        for problem in answer.problems:
            concerned = self._streams.get(problem.node_id)
            if concerned is not None:
                self._solve(concerned, problem)

    def _solve(self, stream: NodeStream, problem: pool_pb2.BeatProblem) -> None:
        match problem.kind:
            case pool_pb2.BeatProblem.KIND_REGISTER_AGAIN:
                self._spawn(self._register_again(stream))
            case pool_pb2.BeatProblem.KIND_EPOCH_OLD:
                why = "a newer connection of this node has taken over"
                self._end(stream, errors.NodeEpochOldError(why))
            case pool_pb2.BeatProblem.KIND_NOT_RENEWED:
                ended = {attempt_key(each) for each in stream.hello.unconfirmed}
                for attempt in problem.attempts:
                    # Of one that has ended meanwhile, a cancel would make the node drop the result,
                    # which is its own to keep until that is taken.
                    key = attempt_key(attempt)
                    if key in stream.running and key not in ended:
                        why = "the job no longer wants this attempt"
                        cancel = dispatcher_pb2.JobCancel(attempt=attempt, why=why)
                        self.cancel(stream.node_id, cancel)

    async def _register_again(self, stream: NodeStream) -> None:
        try:
            answer = await self._pool.register_node(self._registration(stream))
        except errors.LinguaError as error:
            _log.warning(
                "node could not be registered again: %s", error, extra={"node_id": stream.node_id}
            )
            if isinstance(error, errors.NodeIdConflictError):
                self._end(stream, error)
            return
        stream.epoch = answer.epoch
        self._on_room(stream.serves)

    def _let_go_of_silent(self) -> None:
        limit = now_ms() - _SILENT_BEATS * self._settings.node_heartbeat_ms
        for stream in [each for each in self._streams.values() if each.heard_ms < limit]:
            _log.warning("node fell silent", extra={"node_id": stream.node_id})
            self._metrics.silent.inc()
            self._gone(stream)
            stream.end(errors.DeadlineExceededError("nothing was heard of the node for too long"))

    def _registration(self, stream: NodeStream) -> pool_pb2.RegisterNodeRequest:
        return stream.registration(instance_id=self._settings.instance_id, address=self._address())

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _message(**event: Any) -> dispatcher_pb2.DispatcherMessage:
    return dispatcher_pb2.DispatcherMessage(events=[dispatcher_pb2.DispatcherEvent(**event)])


def _batches(streams: Iterable[NodeStream]) -> Iterator[pool_pb2.HeartbeatRequest]:
    """The heartbeats that are due, in requests that fit: one node's long list delays no other."""
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
