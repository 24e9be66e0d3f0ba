"""Listeners of rooms, with the SDK, which write down all that they hear."""

import asyncio
import time
from typing import Any

from lingua_scheduler.sdk import (
    ListeningChanged,
    NotSaid,
    Problem,
    Reconnecting,
    Rejoined,
    Room,
    RoomEvent,
    Said,
    SdkError,
)
from lingua_scheduler.sdk.room.listener import Listener
from lingua_scheduler.v1 import rooms_pb2
from tests.robustness.room_history import SDK, ListenerHistory
from tests.robustness.validate.rooms.lanes import NOT_KEPT, OWN_REASONS
from tests.support.listening_node import words_in
from tests.support.records import Record

# How long to look for a gateway, also at first: Redis may be away for longer than every time-out.
JOIN_S = 50.0


class RoomListener:
    """One stay in a room. What kind of client it is, subclasses say.

    Args:
        wants: some of "captions", "speech" and "original".

    Attributes:
        has_joined: set when it is in the room for the first time, or cannot be.
    """

    def __init__(self, name: str, kind: str, language: str, wants: tuple[str, ...]) -> None:
        self.history = ListenerHistory(name=name, kind=kind)
        self.language = language
        self.wants = wants
        self.has_joined = asyncio.Event()

    async def stay(self) -> None:
        """Joins, and returns when it has left, or the room is closed or lost."""
        raise NotImplementedError

    async def change(self, language: str) -> None:
        """Listens to another language, if it is allowed; returns when that is known."""
        raise NotImplementedError

    async def leave(self) -> None:
        """Leaves the room; `stay` ends soon."""
        raise NotImplementedError

    def note(self, what: str, **more: Any) -> None:
        """Writes something down."""
        self.history.events.append({"t": time.monotonic(), "what": what, **more})

    def note_joined(self, position: int, language: str) -> None:
        """It is in the room, with this language from this position on."""
        self.note("joined", position=position, language=language, wants=list(self.wants))
        self.has_joined.set()


class SdkListener(RoomListener):
    """Uses the SDK, and gRPC."""

    def __init__(self, name: str, room: Room, language: str, wants: tuple[str, ...]) -> None:
        super().__init__(name, SDK, language, wants)
        self._listener = _Observed.of(room, language, wants)

    async def stay(self) -> None:
        """Joins, and returns when it has left, or the room is closed or lost."""
        listener = self._listener
        try:
            async with listener.listener:
                self.note_joined(listener.positions.pop(0), self.language)
                async for event in listener.listener.events():
                    self._on_event(event)
                if listener.listener.room_closed:
                    self.note("closed")
        except SdkError as error:
            self.history.lost = str(error)
        finally:
            if count := listener.listener.counts.repeated:
                self.note("repeated", count=count)
            self.has_joined.set()

    async def change(self, language: str) -> None:
        """Listens to another language; returns when the SDK says that it does, or does not."""
        self.note("changing", language=language)
        try:
            await self._listener.listener.change(language=language)
        except SdkError as error:
            self.note("refused", reason=str(error))

    async def leave(self) -> None:
        """Leaves the room; what has arrived is still read."""
        self.history.left = time.monotonic()
        await self._listener.listener.leave()

    def _on_event(self, event: RoomEvent) -> None:
        match event:
            case Said():
                self.history.events.append({"t": time.monotonic(), **said_by_sdk(event)})
            case NotSaid():
                is_gap = event.until_index > event.room_index + 1
                self.note(
                    "missing",
                    index=event.room_index,
                    until=event.until_index,
                    language=event.language,
                    session=event.session_id,
                    reason=gap_reason(event.reason) if is_gap else event.reason,
                    message=event.message,
                    replayed=event.replayed,
                )
            case ListeningChanged():
                self.language = event.listening.language
                self.note("changed", language=self.language, position=event.position)
            case Reconnecting():
                self.note("reconnecting", why=event.why)
            case Rejoined():
                self.note_joined(self._listener.positions.pop(0), self.language)
            case Problem():
                self.note("problem", reason=event.reason, message=event.message)


class _Observed:
    """A listener of the SDK, and the positions in Joined, which the SDK does not tell."""

    def __init__(self, listener: Listener) -> None:
        self.listener = listener
        self.positions: list[int] = []
        protocol = listener._protocol
        parse = protocol.on_message

        def on_message(now: float, message: rooms_pb2.RoomMessage) -> Any:
            for event in message.events:
                if event.HasField("joined"):
                    self.positions.append(event.joined.position)
            return parse(now, message)

        protocol.on_message = on_message  # type: ignore[method-assign]

    @classmethod
    def of(cls, room: Room, language: str, wants: tuple[str, ...]) -> "_Observed":
        return cls(
            room.listen(
                language=language,
                captions="captions" in wants,
                speech="speech" in wants,
                original_audio="original" in wants,
                reconnect_seconds=JOIN_S,
            )
        )


def said_by_sdk(event: Said) -> Record:
    """An utterance of the SDK as a plain fact."""
    return {
        "what": "said",
        "index": event.room_index,
        "language": event.language,
        "spoken": event.spoken_language,
        "session": event.session_id,
        "kind": event.kind.name,
        "words": event.texts.source.split(),
        "text": event.texts.translated,
        "joined": list(event.joined),
        "replayed": event.replayed,
        "speech": heard_in(event.speech, own=event.language == event.spoken_language),
        "original": words_in(event.original_audio) or None,
        "age_ms": 1000 * time.time() - event.published_ms,
    }


def gap_reason(reason: str) -> str:
    """Why several are missing: only what concerns one listener does that."""
    return reason if reason in OWN_REASONS else NOT_KEPT


def heard_in(speech: bytes, *, own: bool) -> str | None:
    """The text of some speech; None if there is none. In their own language people hear words."""
    if not speech:
        return None
    return " ".join(words_in(speech)) if own else speech.decode().strip()
