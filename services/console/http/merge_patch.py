"""The difference of two JSON documents as a merge patch (RFC 7396). Pure.

In a patch, null means "remove". So a document that is patched must not contain null, and lists,
which a patch cannot change in part, are replaced as a whole.
"""

from typing import Any, TypeAlias

Json: TypeAlias = Any


def diff(old: dict[str, Json], new: dict[str, Json]) -> dict[str, Json]:
    """The patch that makes `new` of `old`; empty if they are the same.

    Raises:
        ValueError: `new` contains null.
    """
    patch: dict[str, Json] = {key: None for key in old if key not in new}
    for key, value in new.items():
        before = old.get(key)
        if value is None:
            raise ValueError(f"{key!r} is null")
        if isinstance(value, dict):
            inner = diff(before if isinstance(before, dict) else {}, value)
            if inner or not isinstance(before, dict):
                patch[key] = inner
        elif not _same(before, value):
            patch[key] = value
    return patch


def apply(target: Json, patch: Json) -> Json:
    """What a patch makes of a document, which stays as it is."""
    if not isinstance(patch, dict):
        return patch
    made = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            made.pop(key, None)
        else:
            made[key] = apply(made.get(key), value)
    return made


def _same(one: Json, other: Json) -> bool:
    """Whether two values are the same in JSON, where true is not 1, as it is in Python."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)
