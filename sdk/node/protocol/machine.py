"""The node side of Connect: what to send on which event. No I/O, no clock, no logging.

Each method handles one event and returns the effects that the shell has to carry out. Every event
carries the time, in seconds of a monotonic clock. `take` returns the next message to write, and
`next_deadline` says when to call `on_timer`. The life of an attempt:

    JobAssign     a slot is free             JobAck, Start                -> running
                  all slots are taken        JobReject FULL
                  the node is draining       JobReject DRAINING
                  it is invalid              JobReject BAD_JOB
                  it is running              JobAck; nothing starts twice
                  it is unconfirmed          JobAck, and the result again
                  only_if_known, unknown     JobReject NOT_KNOWN
    the handler   has a result               JobResult or JobFailed       -> unconfirmed
                  has ended                  its slot is free
    the deadline passes                      JobFailed TIMED_OUT, Stop    -> unconfirmed
    JobCancel     it is running              Stop; nothing more is sent   -> forgotten
                  it is unconfirmed          the result is dropped        -> forgotten
    ResultReceived                                                        -> forgotten

A broken stream changes none of this: the next Hello lists what is running and unconfirmed, and the
unconfirmed results are sent again after Welcome. An attempt leaves the heartbeats' `running` only
after its outcome was written to the stream, unless it was cancelled.
"""

import random
from collections.abc import Callable

from lingua_scheduler.sdk._transport.endings import Close, Left, Lost, Moved, Refused
from lingua_scheduler.sdk._transport.patience import Patience
from lingua_scheduler.sdk.node.protocol.attempts import Attempt, Attempts
from lingua_scheduler.sdk.node.protocol.effects import NodeEffect, Start, Stop, Warn
from lingua_scheduler.sdk.node.protocol.outbox import Outbox
from lingua_scheduler.sdk.node.protocol.stream import NodeStream
from lingua_scheduler.sdk.node.protocol.unconfirmed import UnconfirmedResults
from lingua_scheduler.sdk.node.protocol.wire import (
    MAX_DETAIL,
    Ref,
    ack_event,
    bad_job,
    failed_event,
    ref_of,
    reject_event,
    result_event,
    texts_of,
)
from lingua_scheduler.sdk.results import Held, Partial, Result
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2
from lingua_scheduler.v1.dispatcher_pb2 import JobReject, NodeEvent, NodeMessage

_IN_NO_POOL = (
    "it gets no jobs because its languages do not fit together. A node serves src -> tgt if src is"
    " in asr and semantic, nmt has src -> tgt or is empty, and tgt is in tts"
)


class NodeProtocol:
    """One node, over all its streams.

    Simulated nodes override `on_assign`, `on_cancel` and `on_overrun` to misbehave.

    Args:
        hello: how the node introduces itself; `running`, `unconfirmed` and `load` are filled in.
        rng: randomizes the first heartbeat, so that nodes do not send theirs together.
        unconfirmed: keeps unconfirmed results.

    Attributes:
        load: the latest load; set it before `on_connected` and `on_timer`.
        health: READY or DEGRADED; draining takes precedence. Change it with `set_health`.
        epoch: the epoch of the connection, from Welcome.
        draining: whether the node rejects new jobs because it is about to stop.
    """

    def __init__(
        self,
        *,
        hello: dispatcher_pb2.Hello,
        rng: random.Random | None = None,
        unconfirmed: UnconfirmedResults | None = None,
    ) -> None:
        self.load = common_pb2.NodeLoad()
        self.health = common_pb2.NODE_HEALTH_READY
        self.epoch = 0
        self.draining = False
        self._hello = hello
        self._rng = rng or random.Random()
        self._unconfirmed = UnconfirmedResults() if unconfirmed is None else unconfirmed
        self._attempts = Attempts(hello.max_concurrent_jobs)
        self._outbox = Outbox(
            attempts=self._attempts, unconfirmed=self._unconfirmed, on_too_large=self._warn_dropped
        )
        self._patience = Patience()
        self._stream: NodeStream | None = None
        self._effects: list[NodeEffect] = []

    # ---- queries of the shell ----

    @property
    def welcomed(self) -> bool:
        """Whether a dispatcher has registered this node on the current stream."""
        return self._stream is not None and self._stream.welcomed

    @property
    def running(self) -> int:
        """The number of attempts that have no result yet and are still wanted."""
        return len(self._attempts)

    @property
    def executing(self) -> int:
        """The number of slots that are taken, including those of stopped handlers."""
        return self._attempts.executing

    @property
    def unconfirmed(self) -> int:
        """The number of results that the dispatcher has not confirmed."""
        return len(self._unconfirmed)

    def next_deadline(self, now: float) -> float | None:
        """Returns when to call `on_timer`, or when `take` has more to give; None: never."""
        due = self._attempts.next_deadline()
        stream = self._stream
        if stream is None:
            return due
        on_stream = stream.next_deadline(busy=self._busy)
        if on_stream is not None and (due is None or on_stream < due):
            due = on_stream
        if stream.welcomed:
            partial = self._attempts.partials.next_due(now)
            if partial is not None and (due is None or partial < due):
                due = partial
        return due

    @property
    def _busy(self) -> bool:
        """Whether there is something to do for which a live dispatcher is needed."""
        return len(self._attempts) > 0 or len(self._unconfirmed) > 0

    def ending(self, now: float) -> Lost | Moved | Refused:
        """Returns why the stream ended, by the last event of the dispatcher."""
        return Lost("the stream ended") if self._stream is None else self._stream.ending(now)

    # ---- the stream ----

    def on_connected(self, now: float) -> None:
        """A new stream is open; its first message is Hello."""
        self._stream = NodeStream(now)

    def on_disconnected(self) -> None:
        """The stream has ended. Attempts go on, and unconfirmed results stay."""
        self._stream = None

    def on_message(self, now: float, message: dispatcher_pb2.DispatcherMessage) -> list[NodeEffect]:
        """A message has arrived. An empty one only shows that the dispatcher is alive."""
        stream = self._stream
        if stream is None:
            return []
        stream.hear(now)
        for event in message.events:
            stream.last_error = None
            match event.WhichOneof("event"):
                case "welcome":
                    self._on_welcome(now, stream, event.welcome)
                case "job_assign":
                    self.on_assign(now, event.job_assign)
                case "job_cancel":
                    self.on_cancel(ref_of(event.job_cancel.attempt), event.job_cancel.why)
                case "result_received":
                    self._forget(ref_of(event.result_received.attempt))
                case "reconnect":
                    stream.leave_at = now + event.reconnect.after_ms / 1000
                    stream.leave_why = event.reconnect.why
                case "error":
                    self._on_error(stream, event.error)
        if stream.unread:
            self._close(stream, Close(Lost("the dispatcher does not read its messages")))
        return self._out()

    def on_timer(self, now: float) -> list[NodeEffect]:
        """The time of `next_deadline` has come."""
        for attempt in self._attempts.pop_overdue(now):
            self.on_overrun(attempt.ref)
        stream = self._stream
        if stream is not None:
            self._check_stream(now, stream)
        return self._out()

    def _check_stream(self, now: float, stream: NodeStream) -> None:
        if stream.leave_at is not None and stream.leave_at <= now:
            self._close(stream, Close(Moved(0.0, stream.leave_why), graceful=True))
        if why := stream.silence(now, busy=self._busy):
            self._patience.ran_out(now)
            self._close(stream, Close(Lost(why, silent=True)))
        stream.beat(now)

    def _on_welcome(self, now: float, stream: NodeStream, welcome: dispatcher_pb2.Welcome) -> None:
        self.epoch = welcome.epoch
        silence_s = self._patience.silence_s(now, welcome.silence_ms)
        stream.welcome(now, welcome, self._rng, silence_s)
        for attempt in welcome.cancelled:
            self.on_cancel(ref_of(attempt), "cancelled while the node was disconnected")
        if welcome.HasField("pools") and not welcome.pools:
            self._do(Warn("node is in no pool", {"reason": _IN_NO_POOL}))
        # Hello carries neither the health nor which audio is held.
        stream.beat_due = self._health() != common_pb2.NODE_HEALTH_READY
        for running in self._attempts:
            if running.held:
                self._answer("held", running.ref, running.held_event())
        self._unconfirmed.send_all_again()

    def _on_error(self, stream: NodeStream, error: common_pb2.Error) -> None:
        stream.last_error = error
        if not stream.welcomed:
            self._close(stream, Close(Refused(error)))
        else:
            self._do(Warn("error from dispatcher", {"reason": error.message}))

    # ---- jobs ----

    def on_assign(self, now: float, assign: dispatcher_pb2.JobAssign) -> None:
        """A job was assigned; see the table above. Called by `on_message`."""
        ref = ref_of(assign.attempt)
        running = self._attempts.get(ref)
        if running is not None:
            self._answer("ack", ref, ack_event(ref))
            if running.deadline is not None and assign.time_left_ms:
                running.deadline = max(running.deadline, now + assign.time_left_ms / 1000)
        elif ref in self._unconfirmed:
            self._answer("ack", ref, ack_event(ref))
            self._unconfirmed.send_again(ref)
        elif assign.only_if_known:
            self.reject(ref, JobReject.CAUSE_NOT_KNOWN, "this node does not know the attempt")
        elif problem := bad_job(assign):
            self.reject(ref, JobReject.CAUSE_BAD_JOB, problem)
        elif self.draining:
            self.reject(ref, JobReject.CAUSE_DRAINING, "the node is about to stop")
        elif self._attempts.is_full:
            detail = f"all {self._attempts.slots} slots are taken"
            self.reject(ref, JobReject.CAUSE_FULL, detail)
        else:
            attempt = self._attempts.start(now, ref, assign)
            self._answer("ack", ref, ack_event(ref))
            self._do(Start(attempt.run, assign))

    def reject(self, ref: Ref, cause: JobReject.Cause.ValueType, detail: str) -> None:
        """Rejects an assignment."""
        self._answer("reject", ref, reject_event(ref, cause, detail))

    def on_cancel(self, ref: Ref, why: str) -> None:
        """A job was cancelled. Called by `on_message`."""
        if self._stream is not None:
            for kind in ("ack", "held"):
                self._stream.unsay(kind, ref)
        self._forget(ref)
        attempt = self._attempts.detach(ref)
        if attempt is not None:
            self._do(Stop(attempt.run, why))

    def on_overrun(self, ref: Ref) -> None:
        """The deadline of a running job has passed. Called by `on_timer`."""
        self._fail_and_stop(ref, "TIMED_OUT", "the job was not done in time")

    def _fail_and_stop(self, ref: Ref, cause: str, detail: str) -> None:
        attempt = self._attempts.detach(ref)
        if attempt is not None:
            self._keep(attempt, failed_event(ref, cause, detail, worth_retry=True))
            self._do(Stop(attempt.run, detail))

    def _forget(self, ref: Ref) -> None:
        self._unconfirmed.forget(ref)
        if self._stream is not None:
            self._stream.said_held.discard(ref)

    # ---- handlers ----

    def on_partial(self, run: int, partial: Partial) -> None:
        """A handler has a partial result."""
        attempt = self._attempts.of_run(run)
        if attempt is not None:
            self._attempts.partials.put(attempt.ref, texts_of(partial))

    def on_hold(self, run: int) -> None:
        """A handler keeps its audio. The dispatcher is told at once, and once on each stream."""
        attempt = self._attempts.of_run(run)
        if attempt is not None and not attempt.held:
            attempt.held = True
            self._answer("held", attempt.ref, attempt.held_event())

    def on_result(self, run: int, result: Result) -> list[NodeEffect]:
        """A handler has its result. Only the first one counts."""
        if isinstance(result, Held):
            self.on_hold(run)
        return self._finish(run, lambda ref: result_event(ref, result))

    def on_failed(
        self, run: int, cause: str, detail: str, *, worth_retry: bool
    ) -> list[NodeEffect]:
        """A handler has failed."""
        return self._finish(
            run, lambda ref: failed_event(ref, cause, detail, worth_retry=worth_retry)
        )

    def on_ended(self, run: int) -> list[NodeEffect]:
        """A handler has ended, and its slot is free. Without a result, the job has failed.

        If the handler said that it keeps the audio, the result is Held.
        """
        self._attempts.ended(run)
        attempt = self._attempts.of_run(run)
        if attempt is None:
            return self._out()
        if attempt.held:
            return self.on_result(run, Held())
        detail = "the handler ended without a result"
        return self.on_failed(run, "NO_RESULT", detail, worth_retry=True)

    def _finish(self, run: int, event: Callable[[Ref], NodeEvent]) -> list[NodeEffect]:
        attempt = self._attempts.of_run(run)
        if attempt is not None:
            # Raises if a value does not fit the message; the attempt is then still running.
            outcome = event(attempt.ref)
            self._attempts.detach(attempt.ref)
            self._keep(attempt, outcome)
        return self._out()

    def _keep(self, attempt: Attempt, event: NodeEvent) -> None:
        events = [event]
        if attempt.held:
            # Kept with the result, so that both are sent on every stream.
            events.insert(0, attempt.held_event())
            if self._stream is not None:
                self._stream.unsay("held", attempt.ref)
        for dropped in self._unconfirmed.add(attempt.ref, events):
            self._forget(dropped)
            self._warn_dropped(dropped, "too many results are unconfirmed")

    def _warn_dropped(self, ref: Ref, why: str) -> None:
        fields: dict[str, str | int] = {"job_id": ref[0], "attempt": ref[1], "reason": why}
        self._do(Warn("result dropped", fields))

    # ---- health and the end ----

    def set_health(self, health: common_pb2.NodeHealth.ValueType) -> None:
        """Sets READY or DEGRADED, and tells the dispatcher at once."""
        self.health = health
        self._beat_now()

    def drain(self) -> None:
        """Rejects new jobs from now on, and tells the dispatcher at once."""
        self.draining = True
        self._beat_now()

    def give_up(self) -> list[NodeEffect]:
        """Fails everything that still runs, so that another node does it."""
        for attempt in list(self._attempts):
            self._fail_and_stop(attempt.ref, "NODE_STOPPED", "the node had to stop")
        return self._out()

    def leave(self, detail: str) -> list[NodeEffect]:
        """Sends Bye after everything that is ready, and ends the stream."""
        stream = self._stream
        if stream is not None:
            if stream.welcomed:
                stream.bye = NodeEvent(bye=dispatcher_pb2.Bye(detail=detail[:MAX_DETAIL]))
            self._close(stream, Close(Left(), graceful=stream.welcomed))
        return self._out()

    def _health(self) -> common_pb2.NodeHealth.ValueType:
        return common_pb2.NODE_HEALTH_DRAINING if self.draining else self.health

    def _beat_now(self) -> None:
        if self._stream is not None:
            self._stream.beat_due = True

    # ---- outgoing messages ----

    def take(self, now: float) -> NodeMessage | None:
        """Returns the next message to write; None if there is none now."""
        stream = self._stream
        if stream is None:
            return None
        if stream.welcomed:
            return self._outbox.take(now, stream, self._health(), self.load)
        return self._outbox.take_hello(stream, self._hello, self.load)

    def _answer(self, kind: str, ref: Ref, event: NodeEvent) -> None:
        # Without a stream there is nobody to answer; the next Hello has all that matters.
        if self._stream is not None:
            self._stream.answer(kind, ref, event)

    def _close(self, stream: NodeStream, close: Close) -> None:
        if not stream.closing:
            stream.closing = True
            self._do(close)

    def _do(self, effect: NodeEffect) -> None:
        self._effects.append(effect)

    def _out(self) -> list[NodeEffect]:
        effects, self._effects = self._effects, []
        return effects
