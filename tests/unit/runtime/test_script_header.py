"""Headers of Lua files: what they declare, and how a wrong one is refused."""

import pytest

from lingua_scheduler.services.runtime.redis.script_header import (
    Argument,
    Header,
    LuaSourceError,
    Rows,
    check_together,
    parse,
    prelude,
)


def header(*lines: str, file: str = "main") -> Header | None:
    return parse(file, "\n".join(f"-- {line}" for line in lines) + "\n\nreturn 1\n")


def known(*lines: str, file: str = "main") -> Header:
    found = header(*lines, file=file)
    assert found is not None
    return found


def test_a_header_declares_arguments_settings_lists_and_rows() -> None:
    found = known(
        "main: does something",
        "@arg job text        the id of the job",
        "@arg may_wait flag",
        "@setting ttl_ms digits",
        "@arg excluded set",
        "@each cuts.index number",
        "@each cuts.cut text",
        "Returns 1.",
        "@include lib/now",
    )
    assert found == Header(
        "main",
        arguments=(Argument("job", "text"), Argument("may_wait", "flag")),
        settings=(Argument("ttl_ms", "digits"),),
        lists=(Argument("excluded", "set"),),
        rows=Rows("cuts", (Argument("index", "number"), Argument("cut", "text"))),
    )
    assert found.names() == ["job", "may_wait", "ttl_ms", "excluded", "cuts"]


def test_a_file_without_arguments_declares_nothing() -> None:
    assert header("Only a comment.", "@include lib/now") is None


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (["@arg job"], "declares nothing"),
        (["@arg job string"], "declares nothing"),
        (["@arg Job text"], "declares nothing"),
        (["@arg job.id text"], "declares nothing"),
        (["@argument job text"], "declares nothing"),
        (["@setting ids texts"], "declares nothing"),
        (["@each ids set"], "declares nothing"),
        (["@arg end text"], "end is a reserved word"),
        (["@arg class text"], "class is a reserved word"),
        (["@arg redis text"], "redis is a reserved word"),
        (["@arg job text", "@arg job number"], "declares job twice"),
        (["@arg job text", "@setting job number"], "declares job twice"),
        (["@arg cuts text", "@each cuts.index number"], "declares cuts twice"),
        (["@each cuts.index number", "@each cuts.index text"], "column of cuts twice"),
        (["@each a text", "@each b text"], "columns of one table"),
        (["@each a.x text", "@each b.y text"], "columns of one table"),
        (["@each a text", "@each a.y text"], "columns of one table"),
        (["@each a.x texts", "@each a.y text"], "only the last of several columns"),
        (["@each a texts"], "only the last of several columns"),
        (["@setting ttl_ms number", "@arg job text"], "out of order"),
        (["@arg ids texts", "@arg job text"], "out of order"),
        (["@each ids text", "@arg job text"], "out of order"),
    ],
)
def test_a_wrong_header_is_refused_with_its_file(lines: list[str], problem: str) -> None:
    with pytest.raises(LuaSourceError, match=f"lua/main.lua.*{problem}"):
        header(*lines)


def test_arguments_are_declared_in_the_header_only() -> None:
    with pytest.raises(LuaSourceError, match=r"outside its header: -- @arg late text"):
        parse("main", "-- main: x\n\nlocal a = 1\n-- @arg late text\n")


def test_a_script_and_its_includes_do_not_declare_the_same_name() -> None:
    both = [known("@arg job text"), known("@arg job text", file="lib/a")]
    with pytest.raises(LuaSourceError, match=r"lua/main.lua declares job twice"):
        check_together("main", both, [])


def test_nothing_follows_what_is_repeated_to_the_end() -> None:
    both = [known("@each ids text"), known("@arg job text", file="lib/a")]
    with pytest.raises(LuaSourceError, match=r"@each must be the last"):
        check_together("main", both, [])


@pytest.mark.parametrize("line", ["local job = 1", "local a, job = 1, 2", "local function job()"])
def test_a_variable_must_not_hide_an_argument(line: str) -> None:
    with pytest.raises(LuaSourceError, match=r"script main hides argument job"):
        check_together("main", [known("@arg job text")], [f"{line}\n"])
    check_together("main", [known("@arg job text")], [f"  {line}\n"])


def test_scalars_are_read_by_one_statement() -> None:
    lines = prelude([known("@arg job text", "@arg may_wait flag", "@setting ttl_ms number")])
    assert lines.splitlines()[1] == (
        "local job, may_wait, ttl_ms = argv[1], argv[2] == '1', tonumber(argv[3])"
    )
