"""The Lua scripts as Redis gets them: one source per script, with its includes in front.

A line `-- @include lib/name` stands for the file `lib/name.lua`. A file is included once, however
many files ask for it, and before the files that ask. In front of everything comes the code that
reads the arguments which the headers declare (`script_header`): those of the script, then those of
the files that it includes.
"""

import re
from collections.abc import Iterator, Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable

from lingua_scheduler.services.runtime.redis.script_header import (
    Header,
    LuaSourceError,
    check_together,
    parse,
    prelude,
)

_INCLUDE = re.compile(r"^-- @include +(\S+) *$", re.MULTILINE)


def packaged_root() -> Traversable:
    """The `lua` folder of this installation."""
    return files("lingua_scheduler") / "lua"


def load_scripts(roots: Sequence[Traversable] | None = None) -> dict[str, str]:
    """Reads every script of the last root, with its includes resolved.

    Args:
        roots: where includes are looked for, first match wins; scripts come from the last one.
            Tests put a folder with a clock of their own in front.

    Raises:
        LuaSourceError: an include is missing, files include each other in a circle, or a header is
            wrong.
    """
    roots = roots or [packaged_root()]
    return {name: _assemble(roots, name) for name in script_names(roots[-1])}


def script_names(root: Traversable) -> list[str]:
    """The names of the scripts in a folder."""
    names = (entry.name for entry in root.iterdir())
    return sorted(name.removesuffix(".lua") for name in names if name.endswith(".lua"))


def script_headers(name: str, roots: Sequence[Traversable] | None = None) -> list[Header]:
    """The headers that declare a script's arguments, in the order in which they are passed.

    Raises:
        LuaSourceError: as `load_scripts`.
    """
    return _headers(name, dict(_parts(roots or [packaged_root()], name, [], set())))


def _assemble(roots: Sequence[Traversable], name: str) -> str:
    sources = dict(_parts(roots, name, [], set()))
    headers = _headers(name, sources)
    start = prelude(headers) if headers else ""
    return start + "".join(_INCLUDE.sub("", each).strip() + "\n" for each in sources.values())


def _headers(name: str, sources: dict[str, str]) -> list[Header]:
    files_in_order = [name, *(file for file in sources if file != name)]
    headers = [header for file in files_in_order if (header := parse(file, sources[file]))]
    check_together(name, headers, list(sources.values()))
    return headers


def _parts(
    roots: Sequence[Traversable], name: str, asked_by: list[str], done: set[str]
) -> Iterator[tuple[str, str]]:
    """The files of a script, by name, each after those that it includes."""
    if name in asked_by:
        circle = " -> ".join([*asked_by[asked_by.index(name) :], name])
        raise LuaSourceError(f"Lua files include each other in a circle: {circle}")
    if name in done:
        return
    source = _read(roots, name, asked_by)
    for include in _INCLUDE.findall(source):
        yield from _parts(roots, include, [*asked_by, name], done)
    done.add(name)
    yield name, source


def _read(roots: Sequence[Traversable], name: str, asked_by: list[str]) -> str:
    for root in roots:
        path = root.joinpath(*f"{name}.lua".split("/"))
        if path.is_file():
            return path.read_text(encoding="utf-8")
    asker = f", included by {' <- '.join(reversed(asked_by))}" if asked_by else ""
    raise LuaSourceError(f"there is no Lua file {name}.lua{asker}")
