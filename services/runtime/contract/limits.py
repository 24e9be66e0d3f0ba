"""Checks messages against the limits that the contract declares beside each field (limits.proto).

Each message type is compiled once, on first use, into two functions: `fits`, a few cheap tests per
field, and `explain`, which names each bad field of a message that does not pass them. Fields
without a declared limit, and types of other packages, are not checked.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message

from lingua_scheduler.services.runtime.contract.text_formats import TEXT_FORMATS, shown
from lingua_scheduler.services.runtime.errors import InvalidMessageError
from lingua_scheduler.v1 import limits_pb2

# Bad fields that an error lists in its details, and in its text.
MAX_NAMED = 20
_MAX_IN_TEXT = 5

# The path of a field, and what is wrong with it.
Violation = tuple[str, str]
_Fits = Callable[[Any], object]
_Explain = Callable[[Any, str], Iterator[Violation]]


class _Rule(NamedTuple):
    """Whether a value is valid, and if not, what is wrong with it."""

    fits: _Fits
    problem: Callable[[Any], str]
    source: str = ""
    """See `_Checks`."""


class _Checks(NamedTuple):
    """The checks of a field."""

    fits: _Fits
    explain: _Explain
    source: str = ""
    """An expression that is true only if `fits` is: `{v}` stands for the value, `{f}` for `fits`.
    Empty: a call of `fits`. An expression costs a fraction of a call."""


_PACKAGE = limits_pb2.DESCRIPTOR.package
_MESSAGE = FieldDescriptor.CPPTYPE_MESSAGE
_ENUM = FieldDescriptor.CPPTYPE_ENUM
_STRING = FieldDescriptor.CPPTYPE_STRING
_UNSIGNED = (FieldDescriptor.CPPTYPE_UINT32, FieldDescriptor.CPPTYPE_UINT64)
_BOOL = FieldDescriptor.CPPTYPE_BOOL
# Most bytes of a character in UTF-8.
_UTF8_BYTES = 4


def fits(message: Message) -> object:
    """Whether no field of a message is bad: true or false, of any type."""
    return (_by_class.get(type(message)) or _checker_of(type(message))).fits(message)


def check(message: Message, path: str = "") -> None:
    """Raises InvalidMessageError, which names every bad field below `path`."""
    if not fits(message):
        refuse(violations(message, path))


def violations(message: Message, path: str = "") -> list[Violation]:
    """The first `MAX_NAMED` bad fields of a message, in the order of the contract."""
    checker = _checker_of(type(message))
    if checker.fits(message):
        return []
    return list(islice(checker.explain(message, path), MAX_NAMED))


def refuse(found: list[Violation]) -> None:
    """Raises InvalidMessageError if there are violations."""
    if found:
        listed = "; ".join(f"{field}: {problem}" for field, problem in found[:_MAX_IN_TEXT])
        more = f" (and {len(found) - _MAX_IN_TEXT} more)" if len(found) > _MAX_IN_TEXT else ""
        raise InvalidMessageError(listed + more, fields=found[:MAX_NAMED])


def limit_of(field: FieldDescriptor) -> limits_pb2.FieldLimits:
    """The limits that a field declares; empty if it declares none."""
    limit = field.GetOptions().Extensions[limits_pb2.limit]
    assert isinstance(limit, limits_pb2.FieldLimits)
    return limit


def is_map(field: FieldDescriptor) -> bool:
    """Whether a field is a map."""
    kind = field.message_type
    return kind is not None and kind.GetOptions().map_entry


def enum_values(field: FieldDescriptor) -> dict[int, str]:
    """The values that an enum field may have, with their names without the prefix."""
    kind, limit = field.enum_type, limit_of(field)
    assert isinstance(kind, EnumDescriptor)
    low = limit.min if limit.HasField("min") else -math.inf
    high = limit.max if limit.HasField("max") else math.inf
    prefix = kind.values_by_number[0].name.removesuffix("UNSPECIFIED")
    return {
        each.number: each.name.removeprefix(prefix)
        for each in kind.values
        if low <= each.number <= high and (each.number or not _must_be_set(field))
    }


class _Checker:
    """Checks one message type. `fits` tells whether it is valid, `explain` what is not."""

    def __init__(self, kind: Descriptor) -> None:
        # The functions that the expression of `fits` calls, by name.
        self._tests: dict[str, object] = {}
        self._explain: list[tuple[str, bool, _Explain]] = []
        parts: list[str] = []
        members: dict[str, dict[str, _Fits]] = {}
        if kind.file.package == _PACKAGE:
            for field in kind.fields:
                if (checks := _checks(field)) is not None:
                    parts += self._add(field, checks, members)
        for oneof, tests in members.items():
            table = self._name(tests)
            parts.append(
                f"((_one := m.WhichOneof({oneof!r})) not in {table}"
                f" or {table}[_one](getattr(m, _one)))"
            )
        # Compiled, as dataclasses do with their methods, because a loop over fields costs twice as
        # much.
        source = f"lambda m: {' and '.join(parts) or 'True'}"
        self.fits: _Fits = eval(source, self._tests)

    def explain(self, message: Any, path: str) -> Iterator[Violation]:
        for name, only_if_present, explain in self._explain:
            if not only_if_present or message.HasField(name):
                yield from explain(getattr(message, name), path + name)

    def _add(
        self,
        field: FieldDescriptor,
        checks: _Checks,
        members: dict[str, dict[str, _Fits]],
    ) -> Iterator[str]:
        optional = field.has_presence and not limit_of(field).required
        self._explain.append((field.name, optional, checks.explain))
        if field.containing_oneof is not None:
            members.setdefault(field.containing_oneof.name, {})[field.name] = checks.fits
            return
        source = checks.source or "{f}({v})"
        test = f"({source.format(v=f'm.{field.name}', f=self._name(checks.fits))})"
        yield f"(not m.HasField({field.name!r}) or {test})" if optional else test

    def _name(self, test: object) -> str:
        name = f"test_{len(self._tests)}"
        self._tests[name] = test
        return name


_by_class: dict[type[Message], _Checker] = {}
_by_name: dict[str, _Checker] = {}


def _checker_of(kind: type[Message]) -> _Checker:
    checker = _by_class.get(kind)
    if checker is None:
        checker = _by_class[kind] = _compiled(kind.DESCRIPTOR)
    return checker


def _compiled(kind: Any) -> _Checker:
    # No type of the contract contains itself.
    if kind.full_name not in _by_name:
        _by_name[kind.full_name] = _Checker(kind)
    return _by_name[kind.full_name]


def _must_be_set(field: FieldDescriptor) -> bool:
    """Whether a value must not be empty; entries of lists never may."""
    return bool(field.is_repeated or limit_of(field).required)


def _checks(field: FieldDescriptor) -> _Checks | None:
    """The checks of a field; None if any value is valid."""
    limit = limit_of(field)
    if is_map(field):
        if not limit.max_items:
            return None
        return _Checks(_map_fits(limit), partial(_explain_map, limit), "not {v} or {f}({v})")
    return _list_checks(field, limit) if field.is_repeated else _value_checks(field, limit)


def _value_checks(field: FieldDescriptor, limit: limits_pb2.FieldLimits) -> _Checks | None:
    """The checks of a single value, or of each entry of a list."""
    if field.cpp_type == _MESSAGE:
        return None if limit.apart else _message_checks(field, limit.max_bytes)
    rule = _rule(field, limit)
    if rule is None:
        return None
    return _Checks(rule.fits, partial(_explain_one, rule), rule.source)


def _message_checks(field: FieldDescriptor, most: int) -> _Checks:
    nested = _compiled(field.message_type)
    if not most:
        return _Checks(nested.fits, lambda value, path: nested.explain(value, f"{path}."))

    def explain(value: Any, path: str) -> Iterator[Violation]:
        if (size := value.ByteSize()) > most:
            yield path, f"has {size} bytes; at most {most} are allowed"
        else:
            yield from nested.explain(value, f"{path}.")

    return _Checks(lambda value: value.ByteSize() <= most and nested.fits(value), explain)


def _explain_one(rule: _Rule, value: object, path: str) -> Iterator[Violation]:
    if not rule.fits(value):
        yield path, rule.problem(value)


# ---- single values ----


def _rule(field: FieldDescriptor, limit: limits_pb2.FieldLimits) -> _Rule | None:
    if limit.any_value or field.cpp_type == _BOOL:
        return None
    if field.cpp_type == _ENUM:
        allowed = enum_values(field)
        return _Rule(
            allowed.__contains__, lambda value: f"{value} must be {_either(allowed.values())}"
        )
    if field.cpp_type == _STRING:
        required = _must_be_set(field)
        if limit.format:
            return _format_rule(limit, required=required)
        is_text = field.type == FieldDescriptor.TYPE_STRING
        return _size_rule(limit, required=required, is_text=is_text) if _size_of(limit) else None
    if not (limit.HasField("max") or limit.required):
        return None
    return _number_rule(limit, is_unsigned=field.cpp_type in _UNSIGNED)


def _format_rule(limit: limits_pb2.FieldLimits, *, required: bool) -> _Rule:
    form = TEXT_FORMATS[limit.format]

    def problem(value: str) -> str:
        return f"{shown(value)} must be {form.expected()}" if value else "must not be empty"

    if required:
        return _Rule(form.fits, problem)
    return _Rule(form.fits_or_empty, problem, "not {v} or {f}({v})")


def _size_of(limit: limits_pb2.FieldLimits) -> int:
    return limit.max_bytes or limit.max_chars


def _size_rule(limit: limits_pb2.FieldLimits, *, required: bool, is_text: bool) -> _Rule:
    most, least = _size_of(limit), int(required)
    source = f"{least} <= len({{v}}) <= {most}"
    if is_text and limit.max_bytes:
        source = f"{least} <= len({{v}}) <= {most // _UTF8_BYTES} or {{f}}({{v}})"

        def fits(value: str) -> bool:
            if len(value) * _UTF8_BYTES > most and len(value.encode()) > most:
                return False
            return len(value) >= least

    else:

        def fits(value: str) -> bool:
            return least <= len(value) <= most

    def problem(value: str | bytes) -> str:
        if not value:
            return "must not be empty"
        if limit.max_bytes:
            size = len(value.encode() if isinstance(value, str) else value)
            return f"has {size} bytes; at most {most} are allowed"
        return f"has {len(value)} characters; at most {most} are allowed"

    return _Rule(fits, problem, source)


def _number_rule(limit: limits_pb2.FieldLimits, *, is_unsigned: bool) -> _Rule:
    high = limit.max if limit.HasField("max") else math.inf
    low = limit.min if limit.HasField("min") else float(limit.required)
    may_be_0 = not limit.required

    def fits(value: float) -> bool:
        # NaN is in no range.
        return low <= value <= high or (may_be_0 and value == 0)

    def problem(value: float) -> str:
        return f"{_number(value)} must be from {_number(low)} to {_number(high)}"

    if is_unsigned and low == 0 and math.isfinite(high):
        return _Rule(fits, problem, f"{{v}} <= {int(high)}")
    return _Rule(fits, problem)


def _number(value: float) -> str:
    return f"{value:g}" if not math.isfinite(value) or value % 1 else str(int(value))


def _either(names: Iterable[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last


# ---- lists and maps ----


def _list_checks(field: FieldDescriptor, limit: limits_pb2.FieldLimits) -> _Checks | None:
    most, least = limit.max_items or math.inf, int(limit.required)
    checks = _value_checks(field, limit)

    def fits(values: Any) -> bool:
        count = len(values)
        if not count:
            return not least
        return count <= most and (checks is None or all(map(checks.fits, values)))

    def explain(values: Any, path: str) -> Iterator[Violation]:
        if len(values) < least:
            yield path, "must not be empty"
        if len(values) > most:
            yield path, f"has {len(values)} entries; at most {most} are allowed"
        if checks is not None:
            for at, value in enumerate(islice(values, limit.max_items or None)):
                if not checks.fits(value):
                    yield from checks.explain(value, f"{path}[{at}]")

    return _Checks(fits, explain, "" if least else "not {v} or {f}({v})")


def _map_fits(limit: limits_pb2.FieldLimits) -> _Fits:
    def fits(values: Any) -> bool:
        return not values or not any(_explain_map(limit, values, ""))

    return fits


def _explain_map(limit: limits_pb2.FieldLimits, values: Any, path: str) -> Iterator[Violation]:
    if len(values) > limit.max_items:
        yield path, f"has {len(values)} entries; at most {limit.max_items} are allowed"
        return
    size = 0
    for key, value in values.items():
        size += len(key.encode()) + len(value.encode())
        for where, text in ((path, key), (f"{path}[{key[:40]!r}]", value)):
            if len(text) > limit.max_chars:
                allowed = f"at most {limit.max_chars} are allowed"
                yield where, f"has {len(text)} characters; {allowed}"
    if limit.max_bytes and size > limit.max_bytes:
        yield path, f"has {size} bytes in all; at most {limit.max_bytes} are allowed"
