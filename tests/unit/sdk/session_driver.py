"""Drives a session's protocol with a clock, in the place of a gateway."""

import random

from lingua_scheduler.sdk import (
    SessionError,
)
from lingua_scheduler.sdk._transport.endings import Ending
from lingua_scheduler.sdk.session.protocol.effects import Fail, Give, Retry, SessionEffect
from lingua_scheduler.sdk.session.protocol.machine import SessionProtocol
from lingua_scheduler.v1 import common_pb2, session_pb2
from lingua_scheduler.v1.session_pb2 import ClientMessage, ServerEvent, ServerMessage
from tests.unit.sdk.session_peer import failed, opened

RESUME_S = 20.0
TAKEN_OVER = common_pb2.ERROR_REASON_SESSION_TAKEN_OVER
NOT_FOUND = common_pb2.ERROR_REASON_SESSION_NOT_FOUND
DOWN = common_pb2.ERROR_REASON_SCHEDULER_DEPENDENCY_DOWN
INVALID = common_pb2.ERROR_REASON_INVALID_MESSAGE


class Driver:
    """A session's protocol with a clock. The test plays the gateway."""

    def __init__(self, reconnect_seconds: float | None = None) -> None:
        self.now = 100.0
        self.protocol = SessionProtocol(
            new=session_pb2.NewSession(tenant="t"),
            rng=random.Random(1),
            reconnect_seconds=reconnect_seconds,
        )

    def connect(self, **limits: int) -> list[str]:
        """Opens a stream and the session. Returns the kinds of its messages, Open first."""
        self.protocol.on_connected(self.now)
        heard = self.drain()
        self.say(opened(next_seq=heard[0].open.resume.next_seq, **limits))
        return [kind(each) for each in heard + self.drain()]

    def say(self, *events: ServerEvent) -> list[SessionEffect]:
        return self.protocol.on_message(self.now, ServerMessage(events=events))

    def lose(self, ending: Ending | None = None) -> list[SessionEffect]:
        return self.protocol.on_disconnected(self.now, ending or self.protocol.ending(self.now))

    def refuse(self, reason: common_pb2.ErrorReason.ValueType) -> list[SessionEffect]:
        """Answers the next stream with an error."""
        self.protocol.on_connected(self.now)
        self.drain()
        self.say(failed(reason))
        return self.lose()

    def tick(self, seconds: float) -> list[SessionEffect]:
        self.now += seconds
        due = self.protocol.next_deadline()
        return self.protocol.on_timer(self.now) if due is not None and due <= self.now else []

    def drain(self) -> list[ClientMessage]:
        messages = []
        while (message := self.protocol.take()) is not None:
            messages.append(message)
        return messages


def kind(message: ClientMessage) -> str:
    return message.WhichOneof("message") or "alone"


def error_in(effects: list[SessionEffect]) -> SessionError:
    (error,) = [effect.error for effect in effects if isinstance(effect, Fail)]
    return error


def given(effects: list[SessionEffect]) -> list[object]:
    return [effect.event for effect in effects if isinstance(effect, Give)]


def retries(effects: list[SessionEffect]) -> bool:
    return any(isinstance(effect, Retry) for effect in effects)
