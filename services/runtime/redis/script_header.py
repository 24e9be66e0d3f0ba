"""The arguments that a Lua file declares in its header, and the Lua code that reads them. Pure.

The header is the comment at the top of the file. Arguments are declared there in the order in which
they are passed:

    -- @arg job text                  any text after the kind is for the reader
    -- @setting running_lease_ms number
    -- @arg excluded set
    -- @each cuts.index number
    -- @each cuts.cut text

An `@arg` differs from call to call, a `@setting` is the same for all calls of a process. `@each`
is repeated until the arguments end: `@each finished text` declares a list, and names with a dot
declare the columns of a table. A script reads its arguments as Lua variables of these names, and
never from ARGV. `P` is the prefix of all keys.

| kind   | in Lua                                     | in Python           |
|--------|--------------------------------------------|---------------------|
| text   | string                                     | str or bytes        |
| number | number                                     | int or float        |
| digits | string, for names of keys and fields       | int                 |
| flag   | boolean                                    | bool                |
| texts  | list of strings                            | sequence of str     |
| set    | table of the strings, each with value true | sequence of str     |
"""

import keyword
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

SCALARS = ("text", "number", "digits", "flag")
LISTS = ("texts", "set")

_TAG = re.compile(r"^-- @(\w+)(.*)$")
_DECLARED = re.compile(r"^ +([a-z]\w*)(?:\.([a-z]\w*))? +([a-z]+)(?: .*)?$")
_TOP_LEVEL = re.compile(r"^local (?:function )?([\w, ]+)", re.MULTILINE)
# What a variable of a script must not be called: words of Lua, and what its code reads besides.
_RESERVED = re.compile(
    "and|break|do|else|elseif|end|false|for|function|if|in|local|nil|not|or|repeat|return|then|true"
    "|until|while|bit|ipairs|math|next|pairs|redis|select|string|struct|table|tonumber|type|unpack"
    "|argv|at"
)


class LuaSourceError(Exception):
    """A script cannot be assembled from its files."""


class Argument(NamedTuple):
    """One declared argument, or one column of a table."""

    name: str
    kind: str


class Rows(NamedTuple):
    """What is repeated until the arguments end. A list has one column, which has no name."""

    name: str
    columns: tuple[Argument, ...]

    @property
    def is_list(self) -> bool:
        """Whether this is a list of single values."""
        return not self.columns[0].name


class Header(NamedTuple):
    """The arguments that one file declares, in the order in which they are passed."""

    file: str
    arguments: tuple[Argument, ...]
    settings: tuple[Argument, ...]
    lists: tuple[Argument, ...]
    rows: Rows | None

    def names(self) -> list[str]:
        """The variables that the file gets."""
        declared = (*self.arguments, *self.settings, *self.lists)
        return [each.name for each in declared] + ([self.rows.name] if self.rows else [])


def parse(file: str, source: str) -> Header | None:
    """Reads the header of a file; None if the file declares no arguments.

    Raises:
        LuaSourceError: a declaration is malformed, out of order, or not in the header.
    """
    found: dict[str, list[Argument]] = {"arg": [], "setting": [], "list": []}
    columns: list[tuple[str, Argument]] = []
    order = ("arg", "setting", "list", "each")
    latest, in_header = 0, True
    for line in source.splitlines():
        in_header = in_header and line.startswith("--")
        match = _TAG.match(line)
        if not match or match[1] == "include":
            continue
        tag, name, column, kind = _declaration(file, line, match[1], match[2])
        if not in_header:
            raise LuaSourceError(f"lua/{file}.lua declares this outside its header: {line}")
        if order.index(tag) < latest:
            wanted = "arguments, then settings, then texts and sets, then each"
            raise LuaSourceError(f"lua/{file}.lua declares this out of order ({wanted}): {line}")
        latest = order.index(tag)
        if tag == "each":
            columns.append((name, Argument(column, kind)))
        else:
            found[tag].append(Argument(name, kind))
    if not columns and not any(found.values()):
        return None
    header = Header(
        file,
        tuple(found["arg"]),
        tuple(found["setting"]),
        tuple(found["list"]),
        _rows(file, columns),
    )
    _check_names(file, header.names())
    return header


def _declaration(file: str, line: str, tag: str, rest: str) -> tuple[str, str, str, str]:
    """The tag ("list" for an argument that is one), name, column and kind that a line declares."""
    match = _DECLARED.match(rest)
    name, column, kind = match.groups("") if match else ("", "", "")
    kinds = {"arg": SCALARS + LISTS, "setting": SCALARS, "each": (*SCALARS, "texts")}.get(tag, ())
    if kind not in kinds or (column and tag != "each"):
        raise LuaSourceError(f"lua/{file}.lua has a line that declares nothing: {line}")
    return "list" if tag == "arg" and kind in LISTS else tag, name, column, kind


def _rows(file: str, columns: list[tuple[str, Argument]]) -> Rows | None:
    if not columns:
        return None
    name = columns[0][0]
    rows = Rows(name, tuple(column for _, column in columns))
    names = [column.name for column in rows.columns]
    one_list = names == [""]
    if {each for each, _ in columns} != {name} or not (one_list or all(names)):
        raise LuaSourceError(f"lua/{file}.lua: all lines of @each must be columns of one table")
    if len(set(names)) < len(names):
        raise LuaSourceError(f"lua/{file}.lua declares a column of {name} twice")
    lists = [column.kind in LISTS for column in rows.columns]
    if any(lists[:-1]) or (one_list and lists[0]):
        raise LuaSourceError(f"lua/{file}.lua: only the last of several columns may be texts")
    return rows


def _check_names(file: str, names: Sequence[str]) -> None:
    for at, name in enumerate(names):
        if _RESERVED.fullmatch(name) or keyword.iskeyword(name):
            raise LuaSourceError(f"lua/{file}.lua: {name} is a reserved word; choose another name")
        if name in names[:at]:
            raise LuaSourceError(f"lua/{file}.lua declares {name} twice")


def check_together(script: str, headers: Sequence[Header], sources: Sequence[str]) -> None:
    """Checks what a script declares together with the files that it includes.

    Args:
        script: its name.
        headers: of the script and of those files that declare arguments.
        sources: of all its files.

    Raises:
        LuaSourceError: two declare the same name, or a file's own variable hides an argument.
    """
    names = [name for header in headers for name in header.names()]
    _check_names(script, names)
    for header in headers[:-1]:
        if header.rows is not None:
            raise LuaSourceError(f"lua/{header.file}.lua: @each must be the last of a script")
    for source in sources:
        for declared in _TOP_LEVEL.findall(source):
            for name in (each.strip() for each in declared.split(",")):
                if name in names:
                    raise LuaSourceError(f"a variable of script {script} hides argument {name}")


def prelude(headers: Sequence[Header]) -> str:
    """The Lua code that reads the arguments into variables."""
    return "\n".join(_prelude(headers)) + "\n"


def _prelude(headers: Sequence[Header]) -> Iterator[str]:
    yield "local P, argv = KEYS[1], ARGV"
    # The next argument has the index `first`, counted from the variable `at` after a list.
    first, has_list = 1, False

    def index(offset: int) -> str:
        return f"at + {offset}" if has_list else str(offset)

    for header in headers:
        scalars = header.arguments + header.settings
        if scalars:
            names = ", ".join(each.name for each in scalars)
            values = (
                _value(each.kind, f"argv[{index(first + at)}]") for at, each in enumerate(scalars)
            )
            yield f"local {names} = {', '.join(values)}"
            first += len(scalars)
        for each in header.lists:
            if not has_list:
                yield "local at = 0"
                has_list = True
            entry = f"{each.name}[{{}}] = {{}}"
            key, value = "k", f"argv[at + {first} + k]"
            if each.kind == "set":
                key, value = value, "true"
            yield f"local {each.name} = {{}}"
            yield f"for k = 1, tonumber(argv[at + {first}]) do {entry.format(key, value)} end"
            yield f"at = at + {first} + tonumber(argv[at + {first}])"
            first = 1
        if header.rows is not None:
            yield from _read_rows(header.rows, index(first))


def _read_rows(rows: Rows, first: str) -> Iterator[str]:
    name, columns = rows
    fields = ", ".join(f"{column.name} = {{}}" for column in columns if column.name)
    yield f"local {name} = {{ {fields} }}" if fields else f"local {name} = {{}}"
    yield "do"
    yield f"  local at, row, last = {first}, 1, #argv"
    lists = [f"{name}.{column.name}" if column.name else name for column in columns]
    short = [f"c{number}" for number in range(len(columns))]
    yield f"  local {', '.join(short)} = {', '.join(lists)}"
    yield "  while at <= last do"
    for offset, (column, target) in enumerate(zip(columns, short, strict=True)):
        argument = f"argv[at + {offset}]" if offset else "argv[at]"
        if column.kind == "texts":
            item = f"argv[at + {offset} + k]"
            yield "    local texts = {}"
            yield f"    for k = 1, tonumber({argument}) do texts[k] = {item} end"
            yield f"    {target}[row], at = texts, at + #texts"
        else:
            yield f"    {target}[row] = {_value(column.kind, argument)}"
    yield f"    at, row = at + {len(columns)}, row + 1"
    yield "  end"
    yield "end"


def _value(kind: str, argument: str) -> str:
    match kind:
        case "number":
            return f"tonumber({argument})"
        case "flag":
            return f"{argument} == '1'"
    return argument
