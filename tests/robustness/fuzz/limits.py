"""Messages just within the contract's limits, and just beyond each of them.

Both come from what the contract declares, so a new field or limit is tried without a word here.
"""

import math
from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from lingua_scheduler.services.runtime.contract.limits import enum_values, is_map, limit_of
from lingua_scheduler.v1 import limits_pb2

_MESSAGE = FieldDescriptor.CPPTYPE_MESSAGE
_ENUM = FieldDescriptor.CPPTYPE_ENUM
_STRING = FieldDescriptor.CPPTYPE_STRING
_REALS = (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT)
# The largest number of a field's type; what is beyond cannot be said.
_LARGEST = {
    FieldDescriptor.CPPTYPE_UINT32: 2**32 - 1,
    FieldDescriptor.CPPTYPE_UINT64: 2**64 - 1,
    FieldDescriptor.CPPTYPE_INT32: 2**31 - 1,
    FieldDescriptor.CPPTYPE_INT64: 2**63 - 1,
}
# Texts of each format, used by nobody else; and texts that do not have it.
_RIGHT = {
    limits_pb2.TEXT_FORMAT_ID: "fuzzed",
    limits_pb2.TEXT_FORMAT_LANGUAGE: "qfx",
    limits_pb2.TEXT_FORMAT_LANGUAGE_OR_ANY: "qfx",
    limits_pb2.TEXT_FORMAT_PAGE_TOKEN: "0",
    limits_pb2.TEXT_FORMAT_CAUSE: "FUZZED",
    limits_pb2.TEXT_FORMAT_JOB_TYPE: "fuzzed",
}
_LANGUAGES = (limits_pb2.TEXT_FORMAT_LANGUAGE, limits_pb2.TEXT_FORMAT_LANGUAGE_OR_ANY)
_WRONG = ("x" * 129, "a b", "a\nb", "\0", "é", "x:y", "*?")


def least(kind: Descriptor) -> Any:
    """The smallest message that is within all limits: only what is required."""
    message: Any = GetMessageClass(kind)()
    for field in kind.fields:
        limit = limit_of(field)
        if not limit.required:
            continue
        if field.is_repeated:
            _add(message, field, 1)
        elif field.cpp_type == _MESSAGE:
            getattr(message, field.name).CopyFrom(least(field.message_type))
        else:
            setattr(message, field.name, _right(field))
    return message


def beyond(kind: Descriptor, path: str = "") -> Iterator[tuple[str, Message]]:
    """Paths of fields, each with a message in which that one is beyond a limit.

    Entries that are checked apart, such as events on a stream, are not entered here.
    """
    for field in kind.fields:
        limit, name = limit_of(field), path + field.name
        for value in _wrong(field, limit):
            message = least(kind)
            _set(message, field, value)
            yield name, message
        if limit.max_items:
            message = least(kind)
            _add(message, field, limit.max_items + 1)
            yield name, message
        nested = field.cpp_type == _MESSAGE and not is_map(field)
        if nested and not limit.apart and not limit.max_bytes:
            for inner, wrong in beyond(field.message_type):
                message = least(kind)
                if field.is_repeated:
                    del getattr(message, field.name)[:]
                    getattr(message, field.name).add().CopyFrom(wrong)
                    yield f"{name}[0].{inner}", message
                else:
                    getattr(message, field.name).CopyFrom(wrong)
                    yield f"{name}.{inner}", message


def _set(message: Any, field: FieldDescriptor, value: Any) -> None:
    if is_map(field):
        getattr(message, field.name).update(value)
    elif field.cpp_type == _MESSAGE:
        getattr(message, field.name).CopyFrom(value)
    elif field.is_repeated:
        del getattr(message, field.name)[:]
        getattr(message, field.name).append(value)
    else:
        setattr(message, field.name, value)


def _add(message: Any, field: FieldDescriptor, count: int) -> None:
    entries = getattr(message, field.name)
    if is_map(field):
        entries.update({str(number): "" for number in range(count)})
    elif field.cpp_type == _MESSAGE:
        entries.extend([least(field.message_type)] * count)
    else:
        entries.extend([_right(field)] * count)


def _right(field: FieldDescriptor) -> Any:
    limit = limit_of(field)
    if field.cpp_type == _ENUM:
        return next(number for number in enum_values(field) if number)
    if field.cpp_type == _STRING:
        text = _RIGHT.get(limit.format, "x")
        return text.encode() if field.type == FieldDescriptor.TYPE_BYTES else text
    return int(limit.min) or 1


def _wrong(field: FieldDescriptor, limit: limits_pb2.FieldLimits) -> Iterator[Any]:
    """Values beyond each limit of a field, but for the number of its entries."""
    if limit.any_value or limit.apart:
        return
    if is_map(field):
        yield {"x": "x" * (limit.max_chars + 1)}
        yield {"x" * (limit.max_chars + 1): ""}
        yield {f"{number}": "字" * limit.max_chars for number in range(limit.max_items)}
    elif field.cpp_type == _MESSAGE:
        if limit.max_bytes and not field.is_repeated:
            yield _of_bytes(field.message_type, limit.max_bytes + 1)
    elif field.cpp_type == _ENUM:
        known = enum_values(field)
        yield from (number for number in (-1, max(known) + 1, 2**31 - 1) if number not in known)
    elif field.cpp_type == _STRING:
        yield from _wrong_texts(field, limit)
    elif limit.HasField("max"):
        yield from _wrong_numbers(field, limit)


def _wrong_texts(field: FieldDescriptor, limit: limits_pb2.FieldLimits) -> Iterator[Any]:
    if field.type == FieldDescriptor.TYPE_BYTES:
        yield bytes(limit.max_bytes + 1)
    elif limit.format:
        yield from _WRONG
        if limit.format in _LANGUAGES:
            yield "xx"  # no language has it
    elif limit.max_bytes:
        yield "x" * (limit.max_bytes + 1)
        yield "字" * (limit.max_bytes // 3 + 1)
    else:
        yield "字" * (limit.max_chars + 1)


def _wrong_numbers(field: FieldDescriptor, limit: limits_pb2.FieldLimits) -> Iterator[Any]:
    if field.cpp_type in _REALS:
        yield from (limit.max + 1, limit.min - 1, math.inf, -math.inf, math.nan)
        return
    largest = _LARGEST[field.cpp_type]
    yield from {min(int(limit.max) + 1, largest), largest}
    if limit.min > 1:
        yield int(limit.min) - 1


def _of_bytes(kind: Descriptor, size: int) -> Any:
    """A message of at least so many bytes, in the first text that it has."""
    message: Any = GetMessageClass(kind)()
    text = next(field for field in kind.fields if field.type == FieldDescriptor.TYPE_STRING)
    setattr(message, text.name, "x" * size)
    return message


def beyond_on_stream(kind: Descriptor) -> Iterator[tuple[str, Message]]:
    """The same of what a stream takes, with the entries that are checked apart."""
    yield from beyond(kind)
    for field in kind.fields:
        if limit_of(field).apart:
            for inner, wrong in beyond(field.message_type):
                message = least(kind)
                _set_entry(message, field, wrong)
                yield f"{field.name}.{inner}", message


def _set_entry(message: Any, field: FieldDescriptor, entry: Message) -> None:
    if field.is_repeated:
        getattr(message, field.name).add().CopyFrom(entry)
    else:
        getattr(message, field.name).CopyFrom(entry)
