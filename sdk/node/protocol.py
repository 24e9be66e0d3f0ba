"""The node's side of Connect: what to say on which event. No I/O, no clock, no logging.

A method is an event; what it returns is what the shell has to do. Every event carries the time, in
seconds of a clock that only goes up. `take` gives the next message to write, and `next_deadline`
says when `on_timer` is to be called. The life of an attempt:

    JobAssign     a slot is free          JobAck, Start                -> running
                  all slots are busy      JobReject FULL
                  draining                JobReject DRAINING
                  cannot be understood    JobReject BAD_JOB
                  it is running           JobAck, nothing starts twice
                  it is done, unconfirmed JobAck, the result again
                  only_if_known, and not  JobReject NOT_KNOWN
    the handler   has a result            JobResult or JobFailed       -> unconfirmed
                  has ended               its slot is free
    time is over                          JobFailed TIMED_OUT, Stop    -> unconfirmed
    JobCancel     it is running           Stop; nothing more is said   -> forgotten
                  it is unconfirmed       the result is dropped        -> forgotten
    ResultReceived                                                     -> forgotten

A stream that breaks changes none of this: the next Hello lists what is running and unconfirmed, and
after Welcome the unconfirmed results are sent again. An execution that was stopped keeps its slot
until the handler has really ended. An attempt leaves the heartbeats' `running` only after its end
was said on the stream, unless it was cancelled.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass

from lingua_scheduler.sdk._transport.endings import Close, Left, Lost, Moved, Refused
from lingua_scheduler.sdk._transport.patience import Patience
from lingua_scheduler.sdk.node.effects import NodeEffect, Start, Stop, Warn
from lingua_scheduler.sdk.node.kept_results import KeptResults
from lingua_scheduler.sdk.node.partials import Partials
from lingua_scheduler.sdk.node.stream import Batch, StreamState
from lingua_scheduler.sdk.node.wire import (
    MAX_DETAIL,
    Ref,
    attempt_of,
    bad_job,
    failed_event,
    ref_of,
    result_event,
    texts_of,
)
from lingua_scheduler.sdk.results import Held, Partial, Result
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2
from lingua_scheduler.v1.dispatcher_pb2 import NodeEvent, NodeMessage

_Cause = dispatcher_pb2.JobReject
_IN_NO_POOL = (
    "this node is in no pool, so it gets no jobs: its languages do not fit together. A node serves"
    " src -> tgt if src is in asr and semantic, nmt has src -> tgt or is empty, and tgt is in tts"
)


@dataclass(slots=True)
class _Running:
    run: int
    session_id: str
    pair: tuple[str, str]
    utterance_index: int
    deadline: float | None
    held: bool = False

    def held_event(self, ref: Ref) -> NodeEvent:
        pair = common_pb2.LanguagePair(src=self.pair[0], tgt=self.pair[1])
        return NodeEvent(
            audio_held=dispatcher_pb2.AudioHeld(
                attempt=attempt_of(ref),
                session_id=self.session_id,
                pair=pair,
                utterance_index=self.utterance_index,
            )
        )


class NodeProtocol:
    """One node, over all its streams.

    Args:
        hello: the node as it introduces itself; running, unconfirmed and load are filled in.
        rng: spreads the first heartbeat, so that nodes that came together do not beat together.
        kept: where unconfirmed results are kept.

    Attributes:
        load: the newest known load; set it before `on_connected` and `on_timer`.
        health: READY or DEGRADED; draining has precedence. Change it with `set_health`.
        epoch: of the connection, from Welcome.
    """

    def __init__(
        self,
        *,
        hello: dispatcher_pb2.Hello,
        rng: random.Random | None = None,
        kept: KeptResults | None = None,
    ) -> None:
        self.load = common_pb2.NodeLoad()
        self.health = common_pb2.NODE_HEALTH_READY
        self.epoch = 0
        self.draining = False
        self._hello = hello
        self._slots = hello.max_concurrent_jobs
        self._rng = rng or random.Random()
        self._kept = KeptResults() if kept is None else kept
        self._partials = Partials()
        self._running: dict[Ref, _Running] = {}
        self._refs: dict[int, Ref] = {}
        # Executions whose handlers have not ended; stopped ones are in here as well.
        self._executing: set[int] = set()
        self._last_run = 0
        self._patience = Patience()
        self._stream: StreamState | None = None
        self._effects: list[NodeEffect] = []

    # ---- what the shell asks ----

    @property
    def welcomed(self) -> bool:
        """Whether a dispatcher has taken this node in on the present stream."""
        return self._stream is not None and self._stream.welcomed

    @property
    def running(self) -> int:
        """Attempts that are wanted and have no result yet."""
        return len(self._running)

    @property
    def executing(self) -> int:
        """Slots that are taken: also by handlers that were stopped and have not ended."""
        return len(self._executing)

    @property
    def unconfirmed(self) -> int:
        """Results that the dispatcher has not confirmed."""
        return len(self._kept)

    def next_deadline(self, now: float) -> float | None:
        """When `on_timer` has something to do, or `take` something more to give."""
        times = [each.deadline for each in self._running.values() if each.deadline is not None]
        if self._stream is not None:
            times += self._stream.deadlines(busy=self._busy)
        if self.welcomed and (due := self._partials.next_due(now)) is not None:
            times.append(due)
        return min(times, default=None)

    @property
    def _busy(self) -> bool:
        """Whether there is something that a dispatcher should hear of soon."""
        return bool(self._running) or len(self._kept) > 0

    def ending(self, now: float) -> Lost | Moved | Refused:
        """Why the stream ended, if it just did: what the dispatcher said last, if anything."""
        stream = self._stream
        if stream is not None and stream.last_error is not None:
            return Refused(stream.last_error)
        if stream is not None and stream.leave_at is not None:
            return Moved(max(0.0, stream.leave_at - now), stream.leave_why)
        return Lost("the stream ended")

    # ---- the stream ----

    def on_connected(self, now: float) -> None:
        """A new stream is open; its first message is Hello."""
        self._stream = StreamState(now)

    def on_disconnected(self) -> None:
        """The stream is gone. What runs goes on; what is unconfirmed stays."""
        self._stream = None

    def on_message(self, now: float, message: dispatcher_pb2.DispatcherMessage) -> list[NodeEffect]:
        """The dispatcher has said something; whatever it is, it lives."""
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
                    self._cancel(ref_of(event.job_cancel.attempt), event.job_cancel.why)
                case "result_received":
                    self._forget(ref_of(event.result_received.attempt))
                case "reconnect":
                    stream.leave_at = now + event.reconnect.after_ms / 1000
                    stream.leave_why = event.reconnect.why
                case "error":
                    self._on_error(stream, event.error)
        if stream.unread:
            self._close(stream, Close(Lost("the dispatcher does not read what it is told")))
        return self._out()

    def on_timer(self, now: float) -> list[NodeEffect]:
        """It is `next_deadline`, or later."""
        for ref, running in list(self._running.items()):
            if running.deadline is not None and running.deadline <= now:
                running.deadline = None
                self.on_overrun(ref)
        stream = self._stream
        if stream is not None:
            self._check_stream(now, stream)
        return self._out()

    def _check_stream(self, now: float, stream: StreamState) -> None:
        if stream.leave_at is not None and stream.leave_at <= now:
            self._close(stream, Close(Moved(0.0, stream.leave_why), graceful=True))
        if why := stream.silence(now, busy=self._busy):
            self._patience.ran_out(now)
            self._close(stream, Close(Lost(why, silent=True)))
        stream.beat(now)

    def _on_welcome(self, now: float, stream: StreamState, welcome: dispatcher_pb2.Welcome) -> None:
        self.epoch = welcome.epoch
        silence_s = self._patience.silence_s(now, welcome.silence_ms)
        stream.welcome(now, welcome, self._rng, silence_s)
        for attempt in welcome.cancelled:
            self._cancel(ref_of(attempt), "no longer wanted when the node came back")
        if welcome.HasField("pools") and not welcome.pools:
            self._do(Warn(_IN_NO_POOL))
        # Hello tells neither the health nor what is held.
        stream.beat_due = self._health() != common_pb2.NODE_HEALTH_READY
        for ref, running in self._running.items():
            if running.held:
                self._answer("held", ref, running.held_event(ref))
        self._kept.send_all_again()

    def _on_error(self, stream: StreamState, error: common_pb2.Error) -> None:
        stream.last_error = error
        if not stream.welcomed:
            self._close(stream, Close(Refused(error)))
        else:
            self._do(Warn(f"the dispatcher reports an error: {error.message}"))

    # ---- jobs ----

    def on_assign(self, now: float, assign: dispatcher_pb2.JobAssign) -> None:
        """A job is offered; see the table above. Part of `on_message`."""
        ref = ref_of(assign.attempt)
        known = self._running.get(ref)
        if known is not None:
            self._ack(ref)
            if known.deadline is not None and assign.time_left_ms:
                known.deadline = max(known.deadline, now + assign.time_left_ms / 1000)
        elif ref in self._kept:
            self._ack(ref)
            self._kept.send_again(ref)
        elif assign.only_if_known:
            self.reject(ref, _Cause.CAUSE_NOT_KNOWN, "this node does not have that attempt")
        elif problem := bad_job(assign):
            self.reject(ref, _Cause.CAUSE_BAD_JOB, problem)
        elif self.draining:
            self.reject(ref, _Cause.CAUSE_DRAINING, "the node is about to stop")
        elif len(self._executing) >= self._slots:
            self.reject(ref, _Cause.CAUSE_FULL, f"all {self._slots} slots are taken")
        else:
            self._start(now, ref, assign)

    def _start(self, now: float, ref: Ref, assign: dispatcher_pb2.JobAssign) -> None:
        self._last_run += 1
        run, job = self._last_run, assign.job
        self._running[ref] = _Running(
            run=run,
            session_id=job.session_id,
            pair=(job.pair.src, job.pair.tgt),
            utterance_index=job.utterance_index,
            deadline=now + assign.time_left_ms / 1000 if assign.time_left_ms else None,
        )
        self._refs[run] = ref
        self._executing.add(run)
        self._partials.open(ref, job.partial_interval_ms / 1000)
        self._ack(ref)
        self._do(Start(run, assign))

    def _cancel(self, ref: Ref, why: str) -> None:
        if self._stream is not None:
            for kind in ("ack", "held"):
                self._stream.unsay(kind, ref)
        self._forget(ref)
        running = self._detach(ref)
        if running is not None:
            self._do(Stop(running.run, why))

    def on_overrun(self, ref: Ref) -> None:
        """The time for a running job is over. Part of `on_timer`."""
        self._fail_and_stop(ref, "TIMED_OUT", "the time for the job was over")

    def _fail_and_stop(self, ref: Ref, cause: str, detail: str) -> None:
        running = self._detach(ref)
        if running is not None:
            self._keep(ref, running, failed_event(ref, cause, detail, worth_retry=True))
            self._do(Stop(running.run, detail))

    def _detach(self, ref: Ref) -> _Running | None:
        """From here on, nothing that its handler says goes out."""
        running = self._running.pop(ref, None)
        if running is not None:
            self._refs.pop(running.run, None)
            self._partials.close(ref)
        return running

    def _forget(self, ref: Ref) -> None:
        self._kept.forget(ref)
        if self._stream is not None:
            self._stream.said_held.discard(ref)

    # ---- handlers ----

    def on_partial(self, run: int, partial: Partial) -> None:
        """A handler has a partial result."""
        ref = self._refs.get(run)
        if ref is not None:
            self._partials.put(ref, texts_of(partial))

    def on_hold(self, run: int) -> None:
        """A handler keeps its audio; the dispatcher hears it at once, and once a stream."""
        ref = self._refs.get(run)
        if ref is not None and not self._running[ref].held:
            self._running[ref].held = True
            self._answer("held", ref, self._running[ref].held_event(ref))

    def on_result(self, run: int, result: Result) -> list[NodeEffect]:
        """A handler has its result. Only the first one counts."""
        if isinstance(result, Held):
            self.on_hold(run)
        return self._finish(run, lambda ref: result_event(ref, result))

    def on_failed(
        self, run: int, cause: str, detail: str, *, worth_retry: bool
    ) -> list[NodeEffect]:
        """A handler could not do it."""
        return self._finish(
            run, lambda ref: failed_event(ref, cause, detail, worth_retry=worth_retry)
        )

    def on_ended(self, run: int) -> list[NodeEffect]:
        """A handler has ended, and its slot is free. Without a result, the job has failed.

        One that said that it keeps the audio has the result Held.
        """
        self._executing.discard(run)
        ref = self._refs.get(run)
        if ref is None:
            return self._out()
        if self._running[ref].held:
            return self.on_result(run, Held())
        why = "the handler ended without a result"
        return self.on_failed(run, "NO_RESULT", why, worth_retry=True)

    def _finish(self, run: int, event: Callable[[Ref], NodeEvent]) -> list[NodeEffect]:
        ref = self._refs.get(run)
        if ref is not None:
            made = event(ref)
            running = self._detach(ref)
            assert running is not None
            self._keep(ref, running, made)
        return self._out()

    def _keep(self, ref: Ref, running: _Running, event: NodeEvent) -> None:
        events = [event]
        if running.held:
            # With the result, so that it is said again wherever the result is.
            events.insert(0, running.held_event(ref))
            if self._stream is not None:
                self._stream.unsay("held", ref)
        for gone in self._kept.add(ref, events):
            self._forget(gone)
            self._do(Warn(f"result of {gone[0]}/{gone[1]} dropped: too many wait to be confirmed"))

    # ---- health and the end ----

    def set_health(self, health: common_pb2.NodeHealth.ValueType) -> None:
        """READY or DEGRADED; the dispatcher hears of it at once."""
        self.health = health
        self._beat_now()

    def drain(self) -> None:
        """Take nothing new from now on; the dispatcher hears of it at once."""
        self.draining = True
        self._beat_now()

    def give_up(self) -> list[NodeEffect]:
        """What still runs has failed, and another node is to do it."""
        for ref in list(self._running):
            self._fail_and_stop(ref, "NODE_STOPPED", "the node had to stop")
        return self._out()

    def leave(self, detail: str) -> list[NodeEffect]:
        """Say goodbye, after all that is ready, and end the stream."""
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

    # ---- what goes out ----

    def take(self, now: float) -> NodeMessage | None:
        """The next message to write: all that is ready and fits; None where nothing is."""
        stream = self._stream
        if stream is None:
            return None
        if not stream.welcomed:
            return self._take_hello(stream)
        batch = Batch(stream.message_bytes)
        self._take_answers(stream, batch)
        self._take_results(stream, batch)
        if stream.beat_due:
            batch.add(self._heartbeat(stream))
            stream.asked(now)
        self._take_partials(now, batch)
        if stream.bye is not None and not batch.full:
            batch.add(stream.bye)
            stream.bye = None
        return NodeMessage(events=batch.events) if batch.events else None

    def _take_hello(self, stream: StreamState) -> NodeMessage | None:
        if stream.hello_taken:
            return None
        stream.hello_taken = True
        hello = dispatcher_pb2.Hello()
        hello.CopyFrom(self._hello)
        hello.load.CopyFrom(self.load)
        hello.running.extend(attempt_of(ref) for ref in self._running)
        hello.unconfirmed.extend(attempt_of(ref) for ref in self._kept)
        return NodeMessage(events=[NodeEvent(hello=hello)])

    def _take_answers(self, stream: StreamState, batch: Batch) -> None:
        while not batch.full and (event := stream.pop_answer()) is not None:
            batch.add(event)

    def _take_results(self, stream: StreamState, batch: Batch) -> None:
        while (unsent := self._kept.first_unsent()) is not None:
            ref, events, size = unsent
            if size > batch.limit:
                what = f"the result has {size} bytes; a message has room for {batch.limit}"
                failed = failed_event(ref, "RESULT_TOO_LARGE", what, worth_retry=True)
                self._kept.add(ref, [failed])
                self._do(Warn(f"result of {ref[0]}/{ref[1]} dropped: {what}"))
            elif batch.has_room(size):
                for event in events:
                    if not event.HasField("audio_held"):
                        batch.add(event)
                    elif ref not in stream.said_held:
                        stream.said_held.add(ref)
                        batch.add(event)
                self._kept.sent(ref)
            else:
                batch.full = True
                return

    def _take_partials(self, now: float, batch: Batch) -> None:
        for ref in self._partials.due(now):
            event = self._partials.take(ref, now)
            # They are the first to go where a dispatcher is slow, and too large ones always.
            if batch.has_room(event.ByteSize()):
                batch.add(event)

    def _heartbeat(self, stream: StreamState) -> NodeEvent:
        stream.beat_due = False
        stream.beat_seq += 1
        running = [*self._running, *self._kept.unsent()][: self._slots]
        beat = dispatcher_pb2.Heartbeat(
            seq=stream.beat_seq,
            health=self._health(),
            load=self.load,
            running=[attempt_of(ref) for ref in running],
        )
        return NodeEvent(heartbeat=beat)

    def _ack(self, ref: Ref) -> None:
        self._answer("ack", ref, NodeEvent(job_ack=dispatcher_pb2.JobAck(attempt=attempt_of(ref))))

    def reject(
        self, ref: Ref, cause: dispatcher_pb2.JobReject.Cause.ValueType, detail: str
    ) -> None:
        """Says that an assignment is not taken."""
        reject = dispatcher_pb2.JobReject(
            attempt=attempt_of(ref), cause=cause, detail=detail[:MAX_DETAIL]
        )
        self._answer("reject", ref, NodeEvent(job_reject=reject))

    def _answer(self, kind: str, ref: Ref, event: NodeEvent) -> None:
        # Without a stream there is nobody to answer; the next Hello says what counts.
        if self._stream is not None:
            self._stream.answer(kind, ref, event)

    def _close(self, stream: StreamState, close: Close) -> None:
        if not stream.closing:
            stream.closing = True
            self._do(close)

    def _do(self, effect: NodeEffect) -> None:
        self._effects.append(effect)

    def _out(self) -> list[NodeEffect]:
        effects, self._effects = self._effects, []
        return effects
