"""Messages for listeners, each made once for all who get the same."""

import struct
from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property

from google.protobuf import json_format

from lingua_scheduler.services.session_gateway.rooms.lane import Form, Gap, Item
from lingua_scheduler.services.session_gateway.rooms.records import Entry
from lingua_scheduler.v1 import common_pb2, rooms_pb2

# Types of binary frames of the web entry, and their header: type, three bytes 0, room index.
SPEECH_FRAME = 3
ORIGINAL_FRAME = 4
_HEADER = struct.Struct(">B3xQ")
# First byte of a frame that is whole, by kind; lengths that need more than one byte.
_BINARY, _TEXT = 0x82, 0x81
_SHORT, _MIDDLE = 126, 1 << 16
# More of the outcomes of one read do not share a message.
_MAX_BATCH_BYTES = 256 * 1024


class Packed:
    """A message in the form that each transport writes. All listeners share it.

    Args:
        message: is not changed any more.
    """

    def __init__(self, message: rooms_pb2.RoomMessage) -> None:
        self._message = message

    @cached_property
    def proto(self) -> bytes:
        """For gRPC."""
        return self._message.SerializeToString()

    @cached_property
    def payloads(self) -> tuple[list[bytes], str]:
        """For a WebSocket: binary frames with audio, which go first, and the text frame."""
        binary = []
        message = rooms_pb2.RoomMessage()
        message.CopyFrom(self._message)
        for event in message.events:
            if not event.HasField("result"):
                continue
            result = event.result
            if result.speech:
                binary.append(_HEADER.pack(SPEECH_FRAME, result.room_index) + result.speech)
            if result.original_audio:
                header = _HEADER.pack(ORIGINAL_FRAME, result.room_index)
                binary.append(header + result.original_audio)
            result.ClearField("speech")
            result.ClearField("original_audio")
        text = json_format.MessageToJson(message, indent=None, ensure_ascii=False)
        return binary, text

    @cached_property
    def frames(self) -> bytes:
        """The same as it goes over the network: frames of a server have no mask."""
        binary, text = self.payloads
        frames = [_frame(_BINARY, each) for each in binary]
        return b"".join([*frames, _frame(_TEXT, text.encode())])

    @cached_property
    def size(self) -> int:
        """Its bytes, about."""
        return self._message.ByteSize()


def packed_event(**event: object) -> Packed:
    """A message with one event, named as in RoomEvent."""
    made = rooms_pb2.RoomEvent(**event)  # type: ignore[arg-type]
    return Packed(rooms_pb2.RoomMessage(events=[made]))


SIGN_OF_LIFE = Packed(rooms_pb2.RoomMessage())
"""A message without events."""


def complete(entry: Entry, language: str) -> Entry:
    """An entry that says why it is missing, if no outcome came in time."""
    if entry.event:
        return entry
    why = common_pb2.Error(
        reason=common_pb2.ERROR_REASON_DEADLINE_EXCEEDED,
        message="no result came in time, and its speaker is gone",
    )
    missing = rooms_pb2.RoomMissing(room_index=entry.index, language=language, why=why)
    return replace(entry, event=rooms_pb2.RoomEvent(missing=missing).SerializeToString())


def packed_items(items: Iterable[Item], form: Form, max_message_bytes: int) -> list[Packed]:
    """Outcomes of one language, as listeners with this form get them.

    Args:
        items: in order; all outcomes are entries.
        form: what the listeners want.
        max_message_bytes: a larger event is sent without audio.
    """
    packed: list[Packed] = []
    message, size = rooms_pb2.RoomMessage(), 0
    for item in items:
        event = _gap(item) if isinstance(item, Gap) else _event(item, form)
        if event.ByteSize() > max_message_bytes:
            event.result.ClearField("speech")
            event.result.ClearField("original_audio")
        if size and size + event.ByteSize() > _MAX_BATCH_BYTES:
            packed.append(Packed(message))
            message, size = rooms_pb2.RoomMessage(), 0
        message.events.append(event)
        size += event.ByteSize()
    if message.events:
        packed.append(Packed(message))
    return packed


def _event(entry: Item, form: Form) -> rooms_pb2.RoomEvent:
    assert isinstance(entry, Entry)
    event = rooms_pb2.RoomEvent.FromString(entry.event)
    told = event.result if event.HasField("result") else event.missing
    told.replayed = Form.REPLAYED in form
    if entry.previous is not None:
        told.previous_index = entry.previous
    if isinstance(told, rooms_pb2.RoomResult):
        _add_audio(told, entry, form)
        if Form.CAPTIONS not in form:
            told.ClearField("texts")
    return event


def _add_audio(result: rooms_pb2.RoomResult, entry: Entry, form: Form) -> None:
    wanted = Form(0) if Form.REPLAYED in form else form
    is_own = result.language == result.spoken_language
    if Form.SPEECH in wanted and entry.speech:
        result.speech = entry.speech
    else:
        result.ClearField("speech_format")
    # In the language that is spoken, the speech is the speaker's own.
    if (Form.ORIGINAL in wanted or (is_own and Form.SPEECH in wanted)) and entry.original:
        result.original_audio = entry.original
    else:
        result.ClearField("original_format")


def _gap(gap: Gap) -> rooms_pb2.RoomEvent:
    why = common_pb2.Error(
        reason=common_pb2.ERROR_REASON_JOB_NOT_FOUND,
        message="these outcomes are no longer kept",
    )
    missing = rooms_pb2.RoomMissing(
        room_index=gap.first, until_index=gap.until, language=gap.language, why=why
    )
    return rooms_pb2.RoomEvent(missing=missing)


def form_of(listening: rooms_pb2.Listening) -> Form:
    """The form in which somebody who listens like this gets outcomes."""
    form = Form(0)
    if listening.captions:
        form |= Form.CAPTIONS
    if listening.speech:
        form |= Form.SPEECH
    if listening.original_audio:
        form |= Form.ORIGINAL
    return form


def _frame(head: int, payload: bytes) -> bytes:
    size = len(payload)
    if size < _SHORT:
        return bytes([head, size]) + payload
    if size < _MIDDLE:
        return bytes([head, 126]) + size.to_bytes(2, "big") + payload
    return bytes([head, 127]) + size.to_bytes(8, "big") + payload
