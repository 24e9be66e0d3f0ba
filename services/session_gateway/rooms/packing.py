"""Messages for listeners, each made once for all who get the same."""

import struct
from copy import copy
from dataclasses import replace
from functools import cached_property

from google.protobuf import json_format
from google.protobuf.message import DecodeError

from lingua_scheduler.services.session_gateway.rooms.lane import AUDIO, Form, Gap, Item
from lingua_scheduler.services.session_gateway.rooms.records import Entry
from lingua_scheduler.v1 import common_pb2, rooms_pb2

# Types of binary frames of the web entry, and their header: type, three bytes 0, room index.
SPEECH_FRAME = 3
ORIGINAL_FRAME = 4
_HEADER = struct.Struct(">B3xQ")
# First byte of a frame that is whole, by kind; lengths that need more than one byte.
_BINARY, _TEXT = 0x82, 0x81
_SHORT, _MIDDLE = 126, 1 << 16
# Nobody has put an outcome in time.
_OVERDUE = common_pb2.Error(
    reason=common_pb2.ERROR_REASON_DEADLINE_EXCEEDED,
    message="no result came in time, and its speaker is gone",
)
_UNREADABLE = common_pb2.Error(
    reason=common_pb2.ERROR_REASON_INTERNAL, message="the result cannot be read"
)
# No reason of the contract stands for this.
_NOT_KEPT = common_pb2.Error(message="no longer kept")


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


class Said:
    """The outcome of an utterance in one language, packed once for each form.

    Args:
        entry: as it was read.
        language: of its lane.
        max_message_bytes: a larger message is sent without audio.
    """

    __slots__ = ("_entry", "_event", "_max_bytes", "_packed", "index", "previous")

    def __init__(self, entry: Entry, language: str, max_message_bytes: int) -> None:
        self.index = entry.index
        self.previous = entry.previous
        self._entry = entry
        self._event = event_of(entry, language)
        self._max_bytes = max_message_bytes
        self._packed: dict[Form, Packed] = {}

    def silent(self) -> "Said":
        """The same without audio, which would take much memory."""
        if not self._entry.speech and not self._entry.original:
            return self
        silent = copy(self)
        silent._entry = replace(self._entry, speech=b"", original=b"")
        silent._packed = {}
        return silent

    def packed(self, form: Form) -> Packed:
        """The message for listeners with this form."""
        form = self._distinct(form)
        known = self._packed.get(form)
        if known is None:
            event = self._in_form(form)
            if event.ByteSize() > self._max_bytes:
                event = self._in_form(form & ~AUDIO)
            known = self._packed[form] = Packed(rooms_pb2.RoomMessage(events=[event]))
        return known

    def _distinct(self, form: Form) -> Form:
        """The form without what makes no difference here."""
        if self._event.HasField("missing"):
            return form & Form.REPLAYED
        if Form.REPLAYED in form:
            return form & ~AUDIO
        result = self._event.result
        if Form.SPEECH in form and result.language == result.spoken_language:
            # In the language that is spoken, the speech is the speaker's own.
            form |= Form.ORIGINAL
        if not self._entry.speech:
            form &= ~Form.SPEECH
        return form if self._entry.original else form & ~Form.ORIGINAL

    def _in_form(self, form: Form) -> rooms_pb2.RoomEvent:
        event = rooms_pb2.RoomEvent()
        event.CopyFrom(self._event)
        if event.HasField("missing"):
            event.missing.replayed = Form.REPLAYED in form
            return event
        result = event.result
        result.replayed = Form.REPLAYED in form
        if Form.CAPTIONS not in form:
            result.ClearField("texts")
        if Form.SPEECH in form:
            result.speech = self._entry.speech
        else:
            result.ClearField("speech_format")
        if Form.ORIGINAL in form:
            result.original_audio = self._entry.original
        else:
            result.ClearField("original_format")
        return event


def event_of(entry: Entry, language: str) -> rooms_pb2.RoomEvent:
    """The event of an entry, at its place in the lane."""
    event, why = rooms_pb2.RoomEvent(), _OVERDUE
    if entry.event:
        try:
            event = rooms_pb2.RoomEvent.FromString(entry.event)
        except DecodeError:
            why = _UNREADABLE
    if event.WhichOneof("event") not in ("result", "missing"):
        event = rooms_pb2.RoomEvent(missing=rooms_pb2.RoomMissing(why=why))
    told = event.result if event.HasField("result") else event.missing
    told.room_index, told.language = entry.index, language
    if entry.previous is not None:
        told.previous_index = entry.previous
    return event


def packed_item(item: Item, form: Form) -> Packed:
    """An outcome, or a gap, as listeners with this form get it."""
    if isinstance(item, Gap):
        missing = rooms_pb2.RoomMissing(
            room_index=item.first, until_index=item.until, language=item.language, why=_NOT_KEPT
        )
        return packed_event(missing=missing)
    assert isinstance(item, Said)
    return item.packed(form)


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
