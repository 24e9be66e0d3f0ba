"""Makes services/runtime/redis/script_calls.py from the headers of the Lua scripts.

python tools/make_script_calls.py            writes it
python tools/make_script_calls.py --check    exit code 1 if it is not up to date
"""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from lingua_scheduler.services.runtime.redis.script_header import Argument, Header, Rows
from lingua_scheduler.services.runtime.redis.scripts import (
    packaged_root,
    script_headers,
    script_names,
)

MODULE = Path(__file__).parents[1] / "services" / "runtime" / "redis" / "script_calls.py"

HEAD = '''\
"""Packs the arguments of the Lua scripts. Made by `make script-calls` from lua/: edit that.

A call is the name of a script and its arguments, for `RedisLink.call` and `RedisLink.send`. A
script that takes settings is a class, which keeps them encoded and whose method `call` takes the
rest; a script that takes none is a function. The headers in lua/ say what the arguments mean.
"""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, TypeAlias

Text: TypeAlias = str | bytes
Number: TypeAlias = int | float
Word: TypeAlias = str | bytes | int | float
Words: TypeAlias = tuple[Word, ...]
# The first is a str, which mypy cannot say of a tuple that is made with a star.
Call: TypeAlias = tuple[Any, ...]

_YES, _NO = b"1", b"0"


def _encoded(setting: Word) -> bytes:
    if isinstance(setting, bytes):
        return setting
    if isinstance(setting, str):
        return setting.encode()
    return repr(int(setting) if isinstance(setting, bool) else setting).encode()
'''

TYPES = {
    "text": "Text",
    "number": "Number",
    "digits": "int",
    "flag": "bool",
    "texts": "Sequence[str]",
    "set": "Sequence[str]",
}


def module() -> str:
    """The text of the module."""
    parts, done = [HEAD], set[str]()
    for script in script_names(packaged_root()):
        headers = script_headers(script)
        own = [header for header in headers if header.file == script]
        shared = [header for header in headers if header.file != script]
        for header in shared:
            if header.file not in done:
                parts.append("\n".join(_definition(header, [], "")))
                done.add(header.file)
        header = own[0] if own else Header(script, (), (), (), None)
        parts.append("\n".join(_definition(header, shared, script)))
    return "\n\n".join(parts)


def _definition(header: Header, shared: Sequence[Header], script: str) -> Iterator[str]:
    """The class or function of a file; `script` is empty for a file that scripts include."""
    name = header.file.rpartition("/")[2]
    returns = "Call" if script else "Words"
    parameters = [f"{each.name}: {TYPES[each.kind]}" for each in header.arguments + header.lists]
    parameters += [f"{each.file.rpartition('/')[2]}: Words" for each in shared]
    if header.rows is not None:
        parameters.append(f"{header.rows.name}: {_rows_type(header.rows)}")
    about = f'"""Arguments of lua/{header.file}.lua."""'
    if not header.settings:
        yield f"def {name}({_parameters(parameters, '')}) -> {returns}:"
        yield f"    {about}"
        yield from _body(header, shared, script, "    ")
        return
    settings = [
        f"{each.name}: {'Number' if each.kind == 'digits' else TYPES[each.kind]}"
        for each in header.settings
    ]
    yield f"class {''.join(word.capitalize() for word in name.split('_'))}:"
    yield f"    {about}"
    yield ""
    yield f"    def __init__({_parameters(settings, 'self, ')}) -> None:"
    yield from (f"        self._{each.name} = _encoded({each.name})" for each in header.settings)
    yield ""
    yield f"    def call({_parameters(parameters, 'self, ')}) -> {returns}:"
    yield '        """What differs from call to call."""'
    yield from _body(header, shared, script, "        ")


def _parameters(parameters: Sequence[str], first: str) -> str:
    return f"{first}*, {', '.join(parameters)}" if parameters else first.strip(", ")


def _rows_type(rows: Rows) -> str:
    if rows.is_list:
        return f"Iterable[{TYPES[rows.columns[0].kind]}]"
    return f"Iterable[tuple[{', '.join(TYPES[column.kind] for column in rows.columns)}]]"


def _body(header: Header, shared: Sequence[Header], script: str, indent: str) -> Iterator[str]:
    words = [f'"{script}"'] if script else []
    words += [_word(each) for each in header.arguments]
    words += [f"self._{each.name}" for each in header.settings]
    for each in header.lists:
        words += [f"len({each.name})", f"*{each.name}"]
    words += [f"*{each.file.rpartition('/')[2]}" for each in shared]
    rows = header.rows
    if rows is not None and rows.columns[-1].kind == "texts":
        names = [column.name for column in rows.columns]
        yield f"{indent}rows: list[Word] = []"
        yield f"{indent}for {', '.join(names)} in {rows.name}:"
        scalars = ", ".join(_word(column) for column in rows.columns[:-1])
        yield f"{indent}    rows += ({scalars}, len({names[-1]}), *{names[-1]})"
        words.append("*rows")
    elif rows is not None:
        words.append(f"*{rows.name}" if rows.is_list else f"*chain.from_iterable({rows.name})")
    yield f"{indent}return ({', '.join(words)})"
    yield ""


def _word(argument: Argument) -> str:
    return f"_YES if {argument.name} else _NO" if argument.kind == "flag" else argument.name


def _formatted(text: str) -> str:
    ruff = Path(sys.executable).with_name("ruff")
    command = [str(ruff), "format", "--stdin-filename", str(MODULE), "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def main() -> None:
    """Writes the module, or checks it."""
    text = _formatted(module())
    if "--check" in sys.argv:
        if not MODULE.is_file() or MODULE.read_text() != text:
            sys.exit(f"{MODULE.name} is not what lua/ declares: run 'make script-calls'")
        return
    MODULE.write_text(text)


if __name__ == "__main__":
    main()
