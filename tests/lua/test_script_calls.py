"""The arguments that headers declare: Python packs them, and Lua reads the same values by name."""

import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import redis

from lingua_scheduler.services.runtime.redis import script_calls
from lingua_scheduler.services.runtime.redis.script_header import Header, Rows, prelude
from lingua_scheduler.services.runtime.redis.scripts import (
    load_scripts,
    packaged_root,
    script_headers,
    script_names,
)

from .test_lua_sources import write

ROOT = Path(__file__).parents[2]
SCRIPTS = script_names(packaged_root())

Values = dict[str, Any]


def sample(kind: str, seed: str) -> Any:
    """A value of a kind that differs from all others of the script."""
    number = sum(map(ord, seed)) * 31 % 10_007
    match kind:
        case "number" | "digits":
            return number
        case "flag":
            return number % 2 == 1
        case "texts" | "set":
            return [f"{seed}-{at}" for at in range(number % 3)]
    return f"text of {seed}"


def rows_of(rows: Rows) -> list[Any]:
    """Three rows."""
    name = rows.name
    if rows.is_list:
        return [sample(rows.columns[0].kind, f"{name}{at}") for at in range(3)]
    return [
        tuple(sample(column.kind, f"{name}{at}{column.name}") for column in rows.columns)
        for at in range(3)
    ]


def values_of(header: Header) -> tuple[Values, Values]:
    """Values for the settings and for the other arguments of a file."""
    settings = {each.name: sample(each.kind, each.name) for each in header.settings}
    declared = header.arguments + header.lists
    values = {each.name: sample(each.kind, each.name) for each in declared}
    if header.rows is not None:
        values[header.rows.name] = rows_of(header.rows)
    return settings, values


def packed(header: Header, shared: Values) -> tuple[Any, ...]:
    """What the packer of a file makes of its values."""
    name = header.file.rpartition("/")[2]
    settings, values = values_of(header)
    if header.settings:
        packer = getattr(script_calls, "".join(word.capitalize() for word in name.split("_")))
        call = packer(**settings).call
    else:
        call = getattr(script_calls, name)
    result: tuple[Any, ...] = call(**values, **shared)
    return result


def call_of(script: str) -> tuple[Any, ...]:
    """A call of a script, with the arguments of what it includes."""
    headers = script_headers(script)
    shared = {
        header.file.rpartition("/")[2]: packed(header, {})
        for header in headers
        if header.file != script
    }
    own = next((header for header in headers if header.file == script), None)
    return packed(own or Header(script, (), (), (), None), shared)


def expected(header: Header) -> Values:
    """The Lua variables that the values of a file become, as JSON shows them."""
    settings, values = values_of(header)
    found = settings | values
    for each in (*header.arguments, *header.settings):
        if each.kind == "digits":
            found[each.name] = str(found[each.name])
    for each in header.lists:
        if each.kind == "set":
            found[each.name] = dict.fromkeys(found[each.name], True)
    if header.rows is not None and not header.rows.is_list:
        columns = zip(*found[header.rows.name], strict=True)
        found[header.rows.name] = {
            column.name: [str(each) if column.kind == "digits" else each for each in listed]
            for column, listed in zip(header.rows.columns, columns, strict=True)
        }
    return found


@pytest.mark.parametrize("script", SCRIPTS)
def test_lua_reads_by_name_what_python_packs(client: redis.Redis, prefix: str, script: str) -> None:
    headers = script_headers(script)
    names = ["P", *(name for header in headers for name in header.names())]
    table = ", ".join(f"{name} = {name}" for name in names)
    name, *args = call_of(script)

    assert name == script
    reply = client.eval(f"{prelude(headers)}return cjson.encode({{ {table} }})", 1, prefix, *args)

    wanted = {"P": prefix}
    for header in headers:
        wanted |= expected(header)
    # cjson writes an empty table as an object, whatever it stands for.
    assert json.loads(reply.replace(b"[]", b"{}")) == json.loads(
        json.dumps(wanted).replace("[]", "{}")
    )


def test_every_packer_has_a_script() -> None:
    calls = {call_of(script)[0] for script in SCRIPTS}
    assert calls == set(load_scripts())
    public = {
        name
        for name, value in vars(script_calls).items()
        if inspect.getmodule(value) is script_calls and not name.startswith("_")
    }
    shared = {header.file for script in SCRIPTS for header in script_headers(script)}
    names = {file.rpartition("/")[2] for file in shared} | set(SCRIPTS)
    assert {name.replace("_", "").lower() for name in public} == {
        name.replace("_", "") for name in names
    }


@pytest.mark.parametrize("change", ["missing", "extra"])
def test_a_wrong_argument_is_an_error_before_redis_is_asked(change: str) -> None:
    arguments = {"job": "j", "attempt": 1, "node_id": "n"}
    if change == "missing":
        del arguments["node_id"]
    else:
        arguments["home"] = "d"
    with pytest.raises(TypeError, match=r"node_id|home"):
        script_calls.orphan_state(**arguments)  # type: ignore[arg-type]


def test_the_packers_are_those_that_the_headers_declare() -> None:
    check = [sys.executable, "tools/make_script_calls.py", "--check"]
    subprocess.run(check, cwd=ROOT, check=True)


def test_arguments_of_an_include_follow_those_of_the_script(
    client: redis.Redis, prefix: str, tmp_path: Path
) -> None:
    write(
        tmp_path,
        main="-- @arg own text\n-- @include lib/a\n\nreturn { own, shared, #more, more[2] }",
        lib__a="-- @arg shared number\n-- @arg more texts",
    )
    source = load_scripts([tmp_path])["main"]
    assert client.eval(source, 1, prefix, "x", 7, 2, "y", "z") == [b"x", 7, 2, b"z"]
