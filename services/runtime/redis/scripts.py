"""The Lua scripts, as Redis gets them: one source a script, with what it includes in front.

A line `-- @include lib/name` stands for the file `lib/name.lua`. A file is included once, however
many ask for it, and before whoever asks.
"""

import re
from collections.abc import Iterator, Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable

_INCLUDE = re.compile(r"^-- @include +(\S+) *$", re.MULTILINE)


class LuaSourceError(Exception):
    """A script cannot be put together."""


def packaged_root() -> Traversable:
    """The `lua` folder of this installation."""
    return files("lingua_scheduler") / "lua"


def load_scripts(roots: Sequence[Traversable] | None = None) -> dict[str, str]:
    """Reads every script of the last root, with its includes resolved.

    Args:
        roots: where includes are looked for, first match wins; scripts come from the last one.
            Tests put a folder with a clock of their own in front.

    Raises:
        LuaSourceError: an include is missing, or files include each other in a circle.
    """
    roots = roots or [packaged_root()]
    names = sorted(
        entry.name.removesuffix(".lua")
        for entry in roots[-1].iterdir()
        if entry.name.endswith(".lua")
    )
    return {name: "".join(_parts(roots, name, [], set())) for name in names}


def _parts(
    roots: Sequence[Traversable], name: str, asked_by: list[str], done: set[str]
) -> Iterator[str]:
    if name in asked_by:
        circle = " -> ".join([*asked_by[asked_by.index(name) :], name])
        raise LuaSourceError(f"Lua files include each other in a circle: {circle}")
    if name in done:
        return
    source = _read(roots, name, asked_by)
    for include in _INCLUDE.findall(source):
        yield from _parts(roots, include, [*asked_by, name], done)
    done.add(name)
    yield _INCLUDE.sub("", source).strip() + "\n"


def _read(roots: Sequence[Traversable], name: str, asked_by: list[str]) -> str:
    for root in roots:
        path = root.joinpath(*f"{name}.lua".split("/"))
        if path.is_file():
            return path.read_text(encoding="utf-8")
    asker = f", included by {' <- '.join(reversed(asked_by))}" if asked_by else ""
    raise LuaSourceError(f"there is no Lua file {name}.lua{asker}")
