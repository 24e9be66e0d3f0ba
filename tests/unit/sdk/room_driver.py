"""Drives a listener's protocol with a clock, in the place of a gateway; and events of a room."""

import random
from typing import Any

from lingua_scheduler.sdk import Listening, NotSaid, RoomError, Said
from lingua_scheduler.sdk._transport.endings import Ending
from lingua_scheduler.sdk.room.protocol.effects import Fail, Give, ListenerEffect
from lingua_scheduler.sdk.room.protocol.machine import ListenerProtocol
from lingua_scheduler.sdk.session.protocol.effects import Over, Retry
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, rooms_pb2
from lingua_scheduler.v1.rooms_pb2 import ListenerMessage, RoomEvent, RoomMessage

CLOSED = common_pb2.ERROR_REASON_ROOM_CLOSED
NOT_FOUND = common_pb2.ERROR_REASON_ROOM_NOT_FOUND
FULL = common_pb2.ERROR_REASON_ROOM_FULL
DENIED = common_pb2.ERROR_REASON_PERMISSION_DENIED
DOWN = common_pb2.ERROR_REASON_SCHEDULER_DEPENDENCY_DOWN
DRAINING = common_pb2.ERROR_REASON_DRAINING
INVALID = common_pb2.ERROR_REASON_INVALID_MESSAGE


class Driver:
    """A listener's protocol with a clock. The test plays the gateway."""

    def __init__(self, reconnect_seconds: float | None = None) -> None:
        self.now = 100.0
        self.protocol = ListenerProtocol(
            join=rooms_pb2.JoinRoom(room_id="r-1", join_token="room.t", name="ana"),
            listening=Listening(language="es"),
            rng=random.Random(1),
            reconnect_seconds=reconnect_seconds,
        )

    def connect(self, **fields: Any) -> rooms_pb2.JoinRoom:
        """Opens a stream and joins. Returns what was asked for."""
        self.protocol.on_connected(self.now)
        (first,) = self.drain()
        self.say(joined(**fields))
        return first.join

    def say(self, *events: RoomEvent) -> list[ListenerEffect]:
        return self.protocol.on_message(self.now, RoomMessage(events=events))

    def lose(self, ending: Ending | None = None) -> list[ListenerEffect]:
        return self.protocol.on_disconnected(self.now, ending or self.protocol.ending(self.now))

    def refuse(
        self, reason: common_pb2.ErrorReason.ValueType, retry_after_ms: int = 0
    ) -> list[ListenerEffect]:
        """Answers the next stream with an error."""
        self.protocol.on_connected(self.now)
        self.drain()
        self.say(failed(reason, retry_after_ms))
        return self.lose()

    def tick(self, seconds: float) -> list[ListenerEffect]:
        self.now += seconds
        due = self.protocol.next_deadline()
        return self.protocol.on_timer(self.now) if due is not None and due <= self.now else []

    def drain(self) -> list[ListenerMessage]:
        messages = []
        while (message := self.protocol.take()) is not None:
            messages.append(message)
        return messages


def joined(position: int = 0, **fields: Any) -> RoomEvent:
    values = {"member_id": "m-1", "room": rooms_pb2.Room(room_id="r-1"), **fields}
    return RoomEvent(joined=rooms_pb2.Joined(position=position, resume_within_ms=15_000, **values))


def said(
    index: int, previous: int | None = None, text: str = "hola", language: str = "es", **fields: Any
) -> RoomEvent:
    return RoomEvent(
        result=rooms_pb2.RoomResult(
            room_index=index,
            previous_index=previous,
            language=language,
            spoken_language="en",
            session_id="s-1",
            speaker="Ana",
            kind=dispatcher_pb2.JobResult.KIND_TRANSLATED,
            texts=dispatcher_pb2.Texts(source="hello", translated=text),
            **fields,
        )
    )


def missing(index: int, previous: int | None = None, until: int = 0, **fields: Any) -> RoomEvent:
    why = common_pb2.Error(reason=common_pb2.ERROR_REASON_JOB_TIMEOUT, message="too late")
    return RoomEvent(
        missing=rooms_pb2.RoomMissing(
            room_index=index,
            previous_index=previous,
            language="es",
            until_index=until,
            **{"why": why, **fields},
        )
    )


def changed(position: int, language: str = "fr") -> RoomEvent:
    return RoomEvent(
        changed=rooms_pb2.ListeningChanged(
            listening=rooms_pb2.Listening(language=language, captions=True), position=position
        )
    )


def go_away(after_ms: int = 0) -> RoomEvent:
    return RoomEvent(go_away=rooms_pb2.RoomGoAway(after_ms=after_ms, why="draining"))


def failed(reason: common_pb2.ErrorReason.ValueType, retry_after_ms: int = 0) -> RoomEvent:
    error = common_pb2.Error(reason=reason, message="no", retry_after_ms=retry_after_ms)
    return RoomEvent(error=error)


def room_closed(utterances: int = 0) -> RoomEvent:
    return RoomEvent(closed=rooms_pb2.RoomClosed(utterances=utterances))


def kind(message: ListenerMessage) -> str:
    return message.WhichOneof("message") or ""


def given(effects: list[ListenerEffect]) -> list[Any]:
    return [effect.event for effect in effects if isinstance(effect, Give)]


def heard(effects: list[ListenerEffect]) -> list[tuple[int, int, str]]:
    """First index, the one after the last, and why not; of what was said and not said."""
    return [
        (each.room_index, each.room_index + 1, "")
        if isinstance(each, Said)
        else (each.room_index, each.until_index, each.reason)
        for each in given(effects)
        if isinstance(each, Said | NotSaid)
    ]


def error_in(effects: list[ListenerEffect]) -> RoomError:
    (error,) = [effect.error for effect in effects if isinstance(effect, Fail)]
    return error


def retries(effects: list[ListenerEffect]) -> list[float]:
    return [effect.after for effect in effects if isinstance(effect, Retry)]


def is_over(effects: list[ListenerEffect]) -> bool:
    return any(isinstance(effect, Over) for effect in effects)
