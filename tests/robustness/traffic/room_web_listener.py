"""Listeners of rooms over WebSockets by hand: they check nothing, so nothing is hidden."""

import asyncio
import contextlib
import random
import struct
import time
from collections.abc import Sequence
from typing import Any

import aiohttp
from google.protobuf import json_format

from lingua_scheduler.v1 import common_pb2, dispatcher_pb2, rooms_pb2
from tests.robustness.room_history import WEBSOCKET, until_of
from tests.robustness.traffic.room_listener import RoomListener, heard_in
from tests.support.listening_node import words_in
from tests.support.records import Record

# How long to look for a gateway that lets it in; other limits of the suite are shorter.
REJOIN_S = 50.0
ANSWER_S = 5.0
CHANGE_S = 10.0
PAUSE_S = (0.1, 0.5)
SPEECH, ORIGINAL = 3, 4
HEAD = struct.Struct(">B3xQ")
# With these the gateway has decided; all else may be better elsewhere, or later.
FATAL = ("ROOM_NOT_FOUND", "ROOM_CLOSED", "ROOM_FULL", "PERMISSION_DENIED", "INVALID_MESSAGE")


class _Over(Exception):  # noqa: N818 - not an error
    """The stay has ended."""


class WebListener(RoomListener):
    """Joins at one gateway after the other, with its member id and position."""

    def __init__(
        self,
        name: str,
        gateways: Sequence[str],
        join: dict[str, Any],
        language: str,
        wants: tuple[str, ...],
        rng: random.Random,
    ) -> None:
        super().__init__(name, WEBSOCKET, language, wants)
        self._gateways = list(gateways)
        self._join = join
        self._rng = rng
        self._at = rng.randrange(len(gateways))
        self._member_id = ""
        # Where it joined first, and the first index that it has not seen; -1: nothing yet.
        self._live_from = self._position = -1
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._silence_s = 0.0
        self._audio: dict[tuple[int, int], bytes] = {}
        self._decided = asyncio.Event()

    async def stay(self) -> None:
        """Joins, and returns when it has left, or the room is closed or lost."""
        seen = time.monotonic()
        try:
            async with aiohttp.ClientSession() as http:
                while True:
                    is_in = await self._one_stream(http)
                    now = time.monotonic()
                    seen = now if is_in else seen
                    if self.history.left:
                        return
                    if now > seen + REJOIN_S:
                        self.history.lost = f"UNREACHABLE: no gateway in {REJOIN_S:.0f} s"
                        return
                    await asyncio.sleep(self._rng.uniform(*PAUSE_S))
        except _Over:
            pass
        finally:
            self.has_joined.set()
            self._decided.set()

    async def change(self, language: str) -> None:
        """Asks for another language, if it has a gateway."""
        if self._socket is None:
            return
        self._decided.clear()
        self.note("changing", language=language)
        with contextlib.suppress(ConnectionError, TimeoutError):
            await self._socket.send_json({"change": {"listening": self._listening(language)}})
            await asyncio.wait_for(self._decided.wait(), CHANGE_S)

    async def leave(self) -> None:
        """Says so, and hangs up."""
        self.history.left = time.monotonic()
        socket = self._socket
        if socket is not None:
            with contextlib.suppress(ConnectionError):
                await socket.send_json({"leave": {}})
            await socket.close()

    def drop(self) -> None:
        """Breaks its connection off, as a phone in a tunnel does."""
        if self._socket is not None:
            connection = self._socket._conn
            if connection is not None and connection.transport is not None:
                connection.transport.abort()

    # ---- one stream ----

    async def _one_stream(self, http: aiohttp.ClientSession) -> bool:
        """Returns when it has ended; whether it was in the room."""
        address = self._gateways[self._at % len(self._gateways)]
        self._at += 1
        was = self._joins()
        self._silence_s, self._audio = ANSWER_S, {}
        try:
            async with http.ws_connect(
                f"ws://{address}/v1/listen",
                protocols=["lingua.v1"],
                max_msg_size=0,
                timeout=aiohttp.ClientWSTimeout(ws_close=1.0),
            ) as socket:
                await socket.send_json({"join": self._join_message()})
                while not await self._next(socket):
                    pass
        except (aiohttp.ClientError, OSError, TimeoutError):
            pass
        self._socket = None
        is_in = self._joins() > was
        if is_in and not self.history.left:
            self.note("reconnecting")
        self._decided.set()
        return is_in

    def _join_message(self) -> dict[str, Any]:
        message = {**self._join, "listening": self._listening(self.language)}
        if self._member_id:
            position = self._live_from if self._position < 0 else self._position
            message |= {"memberId": self._member_id, "position": str(position)}
        return message

    def _listening(self, language: str) -> dict[str, Any]:
        return {
            "language": language,
            "captions": "captions" in self.wants,
            "speech": "speech" in self.wants,
            "originalAudio": "original" in self.wants,
        }

    def _joins(self) -> int:
        return len(self.history.of("joined"))

    async def _next(self, socket: aiohttp.ClientWebSocketResponse) -> bool:
        """Handles one frame; whether it was the last."""
        frame = await asyncio.wait_for(socket.receive(), self._silence_s)
        if frame.type is aiohttp.WSMsgType.BINARY:
            kind, index = HEAD.unpack_from(frame.data)
            self._audio[kind, index] = frame.data[HEAD.size :]
        elif frame.type is aiohttp.WSMsgType.TEXT:
            message = json_format.Parse(frame.data, rooms_pb2.RoomMessage())
            return any([await self._on_event(socket, event) for event in message.events])
        else:
            return True
        return False

    # ---- events ----

    async def _on_event(
        self, socket: aiohttp.ClientWebSocketResponse, event: rooms_pb2.RoomEvent
    ) -> bool:
        match event.WhichOneof("event"):
            case "joined":
                joined = event.joined
                self._member_id = joined.member_id
                self._silence_s = joined.silence_ms / 1000 or 3600.0
                self._socket = socket
                self.note_joined(joined.position, self.language)
                self._live_from = joined.position if self._live_from < 0 else self._live_from
            case "result":
                self._hear(self._said(event.result))
            case "missing":
                self._hear(_missing(event.missing))
            case "changed":
                self.language = event.changed.listening.language
                self.note("changed", language=self.language, position=event.changed.position)
                self._decided.set()
            case "go_away":
                await asyncio.sleep(event.go_away.after_ms / 1000)
                return True
            case "error":
                return self._on_error(event.error)
            case "closed":
                self.note("closed")
                raise _Over
        return False

    def _on_error(self, error: common_pb2.Error) -> bool:
        reason = reason_of(error)
        self.note("problem", reason=reason, message=error.message)
        if self._socket is not None:
            self.note("refused", reason=reason)
            self._decided.set()
            return False
        if reason == "ROOM_CLOSED" and self._member_id:
            self.note("closed")
            raise _Over
        if reason in FATAL:
            self.history.lost = f"{reason}: {error.message}"
            raise _Over
        return True

    def _hear(self, record: Record) -> None:
        self.history.events.append({"t": time.monotonic(), **record})
        self._position = max(self._position, until_of(record))

    def _said(self, result: rooms_pb2.RoomResult) -> Record:
        index = result.room_index
        speech = self._audio.pop((SPEECH, index), b"")
        original = self._audio.pop((ORIGINAL, index), b"")
        own = result.language == result.spoken_language
        return {
            "what": "said",
            "index": index,
            "previous": result.previous_index if result.HasField("previous_index") else None,
            "language": result.language,
            "spoken": result.spoken_language,
            "session": result.session_id,
            "kind": dispatcher_pb2.JobResult.Kind.Name(result.kind).removeprefix("KIND_"),
            "words": result.texts.source.split(),
            "text": result.texts.translated,
            "joined": list(result.joined_indexes),
            "replayed": result.replayed,
            "speech": heard_in(speech, own=own),
            "original": words_in(original) or None,
            "age_ms": 1000 * time.time() - result.published_ms,
        }


def _missing(missing: rooms_pb2.RoomMissing) -> Record:
    return {
        "what": "missing",
        "index": missing.room_index,
        "until": missing.until_index,
        "previous": missing.previous_index if missing.HasField("previous_index") else None,
        "language": missing.language,
        "session": missing.session_id,
        # A range is no longer kept, for this listener.
        "reason": "NOT_KEPT" if missing.until_index else reason_of(missing.why),
        "message": missing.why.message,
        "replayed": missing.replayed,
    }


def reason_of(error: common_pb2.Error) -> str:
    """The reason as the SDK writes it."""
    return common_pb2.ErrorReason.Name(error.reason).removeprefix("ERROR_REASON_")
