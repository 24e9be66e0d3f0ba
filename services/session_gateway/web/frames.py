"""Frames of the web entry, from and to the messages of the contract. Pure.

A text frame has a message in protobuf's JSON form. Audio and speech go in binary frames: a header
of fixed size, then the bytes. docs/web.md describes both.
"""

import json
import struct
from collections.abc import Mapping
from typing import Any

from google.protobuf import json_format
from google.protobuf.message import Message

from lingua_scheduler.services.runtime.contract import limits
from lingua_scheduler.services.runtime.errors import InvalidMessageError
from lingua_scheduler.services.session_gateway.session import speech
from lingua_scheduler.services.session_gateway.session.speech import Direction
from lingua_scheduler.v1 import common_pb2, session_pb2

# The most bytes of a frame, as of a message over gRPC.
MAX_FRAME_BYTES = 128 * 1024

# The most fields in a text frame. A message that is valid has less than half as many.
_MOST_FIELDS = 128

AUDIO = 1
SPEECH = 2

# Type, flags, two bytes 0, seq, client_ms.
_AUDIO_HEADER = struct.Struct(">BBHQQ")
# The same, with the first three in one: see `plain_heads`.
PLAIN_HEADER = struct.Struct(">4sQQ")
# Type, three bytes 0, utterance index.
_SPEECH_HEADER = struct.Struct(">B3xI")
_BINARY_ONLY = frozenset({"audio", "audio_chunks"})
_IS_FINAL = 1
_DIRECTION_SHIFT = 1
_KNOWN_FLAGS = 0b111

# The direction of a chunk by the bits of its flags. 0: the chunk has none.
Directions = Mapping[int, common_pb2.LanguagePair | None]
_FIXED: Directions = {0: None}


def directions_of(session: session_pb2.NewSession) -> Directions:
    """The directions that chunks of a session can name."""
    if not session.HasField("conversation"):
        return _FIXED
    a, b = session.conversation.a, session.conversation.b
    return {
        0: None,
        1: common_pb2.LanguagePair(src=a, tgt=b),
        2: common_pb2.LanguagePair(src=b, tgt=a),
    }


def plain_heads(session: session_pb2.NewSession) -> Mapping[bytes, Direction]:
    """The first four bytes of the audio frames that have only a direction, if any, and no flag.

    One lookup then checks them all, and finds the direction. Nearly all frames are such.
    """
    directions = speech.directions_of(session)
    # The number of a direction begins at 1, in sessions whose chunks name one.
    first = 1 if len(directions) > 1 else 0
    return {
        bytes([AUDIO, way << _DIRECTION_SHIFT, 0, 0]): direction
        for way, direction in enumerate(directions, first)
    }


def read_binary(frame: bytes, directions: Directions) -> session_pb2.ClientMessage:
    """Reads a binary frame of a client. Raises InvalidMessageError."""
    return session_pb2.ClientMessage(audio=read_audio(frame, directions))


def read_audio(frame: bytes, directions: Directions) -> session_pb2.AudioChunk:
    """Reads the chunk in a binary frame.

    Raises:
        InvalidMessageError: it is not a frame of audio.
    """
    if len(frame) < _AUDIO_HEADER.size:
        raise _bad(f"has {len(frame)} bytes; its header alone has {_AUDIO_HEADER.size}")
    kind, flags, zero, seq, client_ms = _AUDIO_HEADER.unpack_from(frame)
    if kind != AUDIO:
        raise _bad(f"has the type {kind}; clients send only {AUDIO} (audio)")
    if flags > _KNOWN_FLAGS or zero:
        raise _bad("has bits set that have no meaning")
    chunk = session_pb2.AudioChunk(seq=seq, data=frame[_AUDIO_HEADER.size :], client_ms=client_ms)
    if flags:
        if flags & _IS_FINAL:
            chunk.is_final = True
        way = flags >> _DIRECTION_SHIFT
        if way not in directions:
            raise _bad(f"names the direction {way}; this session has {sorted(directions)}")
        direction = directions[way]
        if direction is not None:
            chunk.direction.CopyFrom(direction)
    return chunk


def read_text(frame: str) -> session_pb2.ClientMessage:
    """Reads a text frame of a client.

    Raises:
        InvalidMessageError: it is not a message, or a field is not valid.
    """
    message = session_pb2.ClientMessage()
    read_message(frame, message)
    field = message.WhichOneof("message")
    if field in _BINARY_ONLY:
        problem = "audio must be sent in binary frames"
        raise InvalidMessageError(f"{field}: {problem}", fields=[(field, problem)])
    return message


def read_message(text: str, message: Message) -> None:
    """Reads a message in protobuf's JSON form, and checks its fields.

    Raises:
        InvalidMessageError: it is not a message, or a field is not valid.
    """
    try:
        # json_format takes a list for an object with these names.
        if text.lstrip()[:1] != "{":
            raise ValueError("it has to be an object")
        json_format.ParseDict(json.loads(text, object_pairs_hook=_FewFields()), message)
    except SystemError:
        # That is how protobuf fails on half of a surrogate pair in place of the name of a field.
        name = message.DESCRIPTOR.name
        raise InvalidMessageError(f"the text is not a {name} in JSON: not Unicode") from None
    except (json_format.ParseError, ValueError, RecursionError) as error:
        name, why = message.DESCRIPTOR.name, str(error)
        raise InvalidMessageError(f"the text is not a {name} in JSON: {why}") from None
    limits.check(message)


def written(message: session_pb2.ServerMessage) -> tuple[list[bytes], str]:
    """The frames of a message: binary ones with speech, which go first, and the text frame.

    The speech is removed from the message.
    """
    spoken = []
    for event in message.events:
        if event.HasField("result") and event.result.speech:
            result = event.result
            spoken.append(_SPEECH_HEADER.pack(SPEECH, result.utterance_index) + result.speech)
            result.ClearField("speech")
    as_dict = json_format.MessageToDict(message)
    return spoken, json.dumps(as_dict, ensure_ascii=False, separators=(",", ":"))


class _FewFields:
    """Makes objects of JSON, and stops at a frame with many.

    json_format takes ten times as long for a value as the parser of JSON. A frame full of small
    values would hold up all other clients.
    """

    def __init__(self) -> None:
        self._fields = 0
        self._objects = 0

    def __call__(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        self._objects += 1
        self._fields += len(pairs)
        if max(self._objects, self._fields) > _MOST_FIELDS:
            raise ValueError(f"it has more than {_MOST_FIELDS} fields")
        made: dict[str, Any] = {}
        for name, value in pairs:
            if name in made:
                raise ValueError(f"it has the field {name[:100]!r} twice")
            made[name] = value
        return made


def _bad(problem: str) -> InvalidMessageError:
    return InvalidMessageError(f"the binary frame {problem}")
