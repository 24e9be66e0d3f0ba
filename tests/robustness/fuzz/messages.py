"""Random messages of any type of the contract, with the values that code forgets; and broken bytes.

All ids and languages are ones that nobody else uses: what is sent here must not concern anybody.
"""

import random
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

LANGS = ("qfx", "qfy", "QFX", "xx", "x" * 40, "", "\0", "*", "qfx:qfy")
TEXTS = (
    "",
    "a",
    "no-such-id",
    "x" * 300,
    "é" * 50,
    "a:b",
    "a\nb",
    "\0",
    "../..",
    "%s",
    "-1",
    *LANGS,
)
NUMBERS = (0, 1, 2, 3, 15, 1000, 2**31 - 1, 2**32 - 1, 2**53, 2**63 - 1, 2**64 - 1, -1, -(2**31))
DOUBLES = (0.0, 0.5, 1.0, -1.0, 1e300, float("inf"), float("-inf"), float("nan"))
BYTES = (b"", b"\0", b"\xff" * 7, b"\1\0" * 1600, b"\1" * 3201)

_RANGES = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
    FieldDescriptor.CPPTYPE_ENUM: (-1, 2**31 - 1),
}


def random_message(kind: Descriptor, rng: random.Random, depth: int = 4) -> Message:
    """A message of a type; it can be parsed, and that is all that can be said for it."""
    message: Any = GetMessageClass(kind)()
    for field in kind.fields:
        if rng.random() < 0.35:
            continue
        is_message = field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE
        if is_message and depth == 0:
            continue
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            for _ in range(rng.randrange(3)):
                getattr(message, field.name)[rng.choice(TEXTS)] = rng.choice(TEXTS)
        elif field.is_repeated:
            for _ in range(rng.choice((0, 1, 1, 2, 5))):
                if is_message:
                    made = random_message(field.message_type, rng, depth - 1)
                    getattr(message, field.name).add().CopyFrom(made)
                else:
                    getattr(message, field.name).append(_value(field, rng))
        elif is_message:
            made = random_message(field.message_type, rng, depth - 1)
            getattr(message, field.name).CopyFrom(made)
        else:
            setattr(message, field.name, _value(field, rng))
    return message


def _value(field: FieldDescriptor, rng: random.Random) -> Any:
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_STRING:
            if field.type == FieldDescriptor.TYPE_BYTES:
                return rng.choice(BYTES)
            return rng.choice(LANGS if field.name in ("src", "tgt", "a", "b") else TEXTS)
        case FieldDescriptor.CPPTYPE_BOOL:
            return rng.random() < 0.5
        case FieldDescriptor.CPPTYPE_DOUBLE | FieldDescriptor.CPPTYPE_FLOAT:
            return rng.choice(DOUBLES)
        case kind:
            low, high = _RANGES[kind]
            return min(max(rng.choice(NUMBERS), low), high)


def broken(data: bytes, rng: random.Random) -> bytes:
    """These bytes as they must not be: cut, changed, added to, or others altogether."""
    match rng.randrange(5):
        case 0:
            return rng.randbytes(rng.choice((1, 7, 100, 5000)))
        case 1:
            return data[: rng.randrange(len(data) + 1)]
        case 2:
            changed = bytearray(data or b"\0")
            for _ in range(rng.randrange(1, 5)):
                changed[rng.randrange(len(changed))] = rng.randrange(256)
            return bytes(changed)
        case 3:
            return data + rng.randbytes(rng.randrange(1, 20))
        case _:
            # A field that is longer than the message.
            return data + b"\x0a\xff\xff\xff\xff\x0f"
