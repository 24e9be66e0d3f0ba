"""Drives a node's protocol with a clock, in the place of a dispatcher."""

import random

from lingua_scheduler.sdk.node.protocol.effects import NodeEffect, Start
from lingua_scheduler.sdk.node.protocol.machine import NodeProtocol
from lingua_scheduler.sdk.node.protocol.unconfirmed import UnconfirmedResults
from lingua_scheduler.sdk.results import Translated
from lingua_scheduler.v1 import common_pb2
from lingua_scheduler.v1.dispatcher_pb2 import (
    DispatcherEvent,
    DispatcherMessage,
    Hello,
    JobAssign,
    JobCancel,
    JobSpec,
    NodeEvent,
    ResultReceived,
    Welcome,
)

BEAT_MS = 1000


def ref(job_id: str, attempt: int = 1) -> common_pb2.AttemptRef:
    return common_pb2.AttemptRef(job_id=job_id, attempt=attempt)


def assign(job_id: str, attempt: int = 1, *, left: int = 0, partial: int = 0) -> DispatcherEvent:
    job = JobSpec(
        session_id="s",
        utterance_index=7,
        pair=common_pb2.LanguagePair(src="en", tgt="zh"),
        partial_interval_ms=partial,
    )
    return DispatcherEvent(
        job_assign=JobAssign(attempt=ref(job_id, attempt), job=job, time_left_ms=left)
    )


def cancel(job_id: str) -> DispatcherEvent:
    return DispatcherEvent(job_cancel=JobCancel(attempt=ref(job_id), why="test"))


def received(job_id: str) -> DispatcherEvent:
    return DispatcherEvent(result_received=ResultReceived(attempt=ref(job_id)))


def error(reason: common_pb2.ErrorReason.ValueType) -> DispatcherEvent:
    return DispatcherEvent(error=common_pb2.Error(reason=reason, message="no"))


class Driver:
    """A node's protocol with a clock. The test plays the dispatcher."""

    def __init__(self, *, slots: int = 2, unconfirmed: UnconfirmedResults | None = None) -> None:
        self.now = 100.0
        hello = Hello(node_id="n", incarnation="i", max_concurrent_jobs=slots)
        self.protocol = NodeProtocol(hello=hello, rng=random.Random(1), unconfirmed=unconfirmed)
        self.runs: dict[str, int] = {}
        self.effects: list[NodeEffect] = []

    def connect(self, *cancelled: str, **fields: int) -> list[NodeEvent]:
        """Opens a stream and welcomes the node. Returns its events, Hello first."""
        self.protocol.on_connected(self.now)
        heard = self.drain()
        welcome = Welcome(
            epoch=1,
            cancelled=[ref(job) for job in cancelled],
            **{"heartbeat_interval_ms": BEAT_MS, **fields},
        )
        self.say(DispatcherEvent(welcome=welcome))
        return heard + self.drain()

    def say(self, *events: DispatcherEvent) -> list[NodeEffect]:
        return self._note(self.protocol.on_message(self.now, DispatcherMessage(events=events)))

    def tick(self, seconds: float) -> list[NodeEffect]:
        """Advances the clock and serves timers when they are due."""
        end, effects = self.now + seconds, []
        while (due := self.protocol.next_deadline(self.now)) is not None and due <= end:
            self.now = max(self.now, due)
            effects += self._note(self.protocol.on_timer(self.now))
        self.now = end
        return effects

    def drain(self) -> list[NodeEvent]:
        """Returns everything that the protocol has to send now."""
        events: list[NodeEvent] = []
        while (message := self.protocol.take(self.now)) is not None:
            events += message.events
        return events

    def finish(self, job_id: str) -> None:
        run = self.runs[job_id]
        self._note(self.protocol.on_result(run, Translated(source=job_id)))
        self._note(self.protocol.on_ended(run))

    def _note(self, effects: list[NodeEffect]) -> list[NodeEffect]:
        for effect in effects:
            if isinstance(effect, Start):
                self.runs[effect.assign.attempt.job_id] = effect.run
        self.effects += effects
        return effects


def kinds(events: list[NodeEvent], *without: str) -> list[str]:
    found = [event.WhichOneof("event") or "" for event in events]
    return [kind for kind in found if kind not in without]


def starts(effects: list[NodeEffect]) -> list[str]:
    return [each.assign.attempt.job_id for each in effects if isinstance(each, Start)]
