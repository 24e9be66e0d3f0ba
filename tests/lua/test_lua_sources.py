"""The sources: how includes are resolved, what every file says of itself, and that all compile."""

import re
from pathlib import Path

import pytest
import redis

from lingua_scheduler.services.pool_service import codes
from lingua_scheduler.services.pool_service.refusals import refusal
from lingua_scheduler.services.runtime.errors import reason_name
from lingua_scheduler.services.runtime.redis.script_header import LuaSourceError
from lingua_scheduler.services.runtime.redis.scripts import (
    load_scripts,
    packaged_root,
    script_headers,
)
from lingua_scheduler.v1 import common_pb2, pool_pb2

from .scripts import CLOCK, START_MS, Scripts

LUA = Path(str(packaged_root()))
SCRIPTS = sorted(path.stem for path in LUA.glob("*.lua"))
PARTS = sorted(path.stem for path in LUA.glob("lib/*.lua"))


def write(root: Path, **sources: str) -> Path:
    """Files by name; two underscores stand for a slash."""
    for name, source in sources.items():
        path = root / (name.replace("__", "/") + ".lua")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    return root


def test_an_include_comes_before_whoever_asks_and_only_once(tmp_path: Path) -> None:
    write(
        tmp_path,
        main="-- @include lib/a\n-- @include lib/b\nreturn a + b",
        lib__a="-- @include lib/base\nlocal a = base",
        lib__b="-- @include lib/base\nlocal b = base",
        lib__base="local base = 1",
    )
    source = load_scripts([tmp_path])["main"]
    assert source.split("\n") == [
        "local base = 1",
        "local a = base",
        "local b = base",
        "return a + b",
        "",
    ]


def test_a_script_of_one_file_is_left_as_it_is(tmp_path: Path) -> None:
    write(tmp_path, main="return 1", lib__unused="this is not Lua")
    assert load_scripts([tmp_path]) == {"main": "return 1\n"}


def test_a_missing_include_is_named_with_who_asked_for_it(tmp_path: Path) -> None:
    write(tmp_path, main="-- @include lib/a", lib__a="-- @include lib/none")
    with pytest.raises(LuaSourceError, match=r"lib/none\.lua, included by lib/a <- main"):
        load_scripts([tmp_path])


def test_a_circle_is_named(tmp_path: Path) -> None:
    write(
        tmp_path,
        main="-- @include lib/a",
        lib__a="-- @include lib/b",
        lib__b="-- @include lib/a",
    )
    with pytest.raises(LuaSourceError, match=r"circle: lib/a -> lib/b -> lib/a$"):
        load_scripts([tmp_path])


def test_the_first_root_wins_and_the_last_one_names_the_scripts(tmp_path: Path) -> None:
    ours = write(tmp_path / "ours", lib__now="local now = 'ours'", extra="return 0")
    theirs = write(
        tmp_path / "theirs",
        main="-- @include lib/now\n-- @include lib/more\nreturn now",
        lib__now="local now = 'theirs'",
        lib__more="local more = 1",
    )
    assert load_scripts([ours, theirs]) == {
        "main": "local now = 'ours'\nlocal more = 1\nreturn now\n"
    }


def test_the_tests_replace_the_clock_and_nothing_else() -> None:
    assert [path.relative_to(CLOCK).as_posix() for path in CLOCK.rglob("*.lua")] == ["lib/now.lua"]
    real, clocked = load_scripts(), load_scripts([CLOCK, packaged_root()])
    now, ours = ((root / "lib/now.lua").read_text().strip() for root in (LUA, CLOCK))
    for name in SCRIPTS:
        assert clocked[name].replace(ours, now) == real[name]


def test_keys_with_a_lifetime_follow_the_tests_clock(scripts: Scripts) -> None:
    scripts.join("n1")
    scripts.place("j1")
    assert scripts.client.pttl(scripts.key("job", "j1")) == -1
    scripts.advance(600_000)
    assert scripts.job("j1") == {}


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_script_says_what_it_does_takes_and_returns(name: str) -> None:
    source = (LUA / f"{name}.lua").read_text()
    header = re.match(r"(?:--.*\n)+", source)
    assert header is not None
    lines = header.group().splitlines()
    assert re.match(rf"-- {name}: [a-z].+", lines[0])
    assert any(re.match(r"-- Returns ", line) for line in lines)
    assert script_headers(name), "it declares no arguments"


def test_no_file_reads_an_argument_that_no_header_declares() -> None:
    for path in LUA.rglob("*.lua"):
        code = re.sub(r"--.*", "", path.read_text())
        assert not re.search(r"\b(ARGV|KEYS|argv)\b", code), path.name


@pytest.mark.parametrize("name", PARTS)
def test_every_part_says_what_it_is_for_and_so_does_every_longer_function(name: str) -> None:
    lines = (LUA / f"lib/{name}.lua").read_text().splitlines()
    assert re.match(r"-- [A-Z].+", lines[0])
    for at, line in enumerate(lines):
        if not re.match(r"(local )?function ", line):
            continue
        length = lines[at:].index("end")
        before = lines[at - 1] if not lines[at - 1].startswith("local ") else lines[at - 2]
        # The file's own heading explains what is no longer than one statement.
        if length > 6:
            assert before.startswith("--"), f"line {at + 1} of lib/{name}.lua has no comment"


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_script_compiles_on_the_server(client: redis.Redis, name: str) -> None:
    assert client.script_load(load_scripts()[name])


def test_the_real_clock_is_the_servers(client: redis.Redis, prefix: str) -> None:
    source = (LUA / "lib/now.lua").read_text() + "return now_ms()"
    seconds, micros = client.time()
    now = client.eval(source, 1, prefix)
    assert 0 <= now - (seconds * 1000 + micros // 1000) < 60_000
    assert now != START_MS


def test_every_part_is_included_by_somebody() -> None:
    sources = [path.read_text() for path in LUA.rglob("*.lua")]
    for name in PARTS:
        assert any(f"-- @include lib/{name}\n" in source for source in sources), name


def lua_numbers() -> dict[str, int]:
    source = (LUA / "lib/codes.lua").read_text()
    return {
        name: int(value)
        for name, value in re.findall(r"^local (\w+) = (\d+)", source, re.MULTILINE)
    }


def test_the_numbers_of_lua_are_those_of_the_contract() -> None:
    contract = {
        "READY": common_pb2.NODE_HEALTH_READY,
        "OFFLINE": common_pb2.NODE_HEALTH_OFFLINE,
        "LEAVING": codes.LEAVING,
        "OUT": codes.OUT,
        "DRAINED": codes.DRAINED,
        "MOVING": codes.MOVING,
        "TIMEOUT": common_pb2.FINALIZE_REASON_TIMEOUT,
        "MAX_DURATION": common_pb2.FINALIZE_REASON_MAX_DURATION,
        "MAX_LENGTH": common_pb2.FINALIZE_REASON_MAX_LENGTH,
        "INTERRUPTED": common_pb2.FINALIZE_REASON_INTERRUPTED,
        "BY_PREFERRED": pool_pb2.PLACEMENT_PATH_PREFERRED,
        "BY_TIMEOUT_BINDING": pool_pb2.PLACEMENT_PATH_TIMEOUT_BINDING,
        "BY_MAX_DURATION_BINDING": pool_pb2.PLACEMENT_PATH_MAX_DURATION_BINDING,
        "BY_POOL": pool_pb2.PLACEMENT_PATH_POOL,
        "BY_FALLBACK": pool_pb2.PLACEMENT_PATH_FALLBACK,
        "BY_NAME": pool_pb2.PLACEMENT_PATH_NAMED,
        "BINDING_NONE": pool_pb2.BINDING_OUTCOME_NONE,
        "BINDING_HIT": pool_pb2.BINDING_OUTCOME_HIT,
        "BINDING_UNAVAILABLE": pool_pb2.BINDING_OUTCOME_UNAVAILABLE,
        "BINDING_FULL": pool_pb2.BINDING_OUTCOME_FULL,
        "BINDING_EXCLUDED": pool_pb2.BINDING_OUTCOME_EXCLUDED,
    }
    assert lua_numbers() == contract


def test_the_kind_of_a_binding_follows_from_its_path() -> None:
    numbers = lua_numbers()
    kinds = {"TIMEOUT": pool_pb2.BINDING_KIND_TIMEOUT}
    kinds["MAX_DURATION"] = pool_pb2.BINDING_KIND_MAX_DURATION
    for word, kind in kinds.items():
        assert numbers[f"BY_{word}_BINDING"] - numbers["BY_TIMEOUT_BINDING"] + 1 == kind


def test_no_health_of_the_contract_is_mistaken_for_one_beyond_it() -> None:
    assert max(common_pb2.NodeHealth.values()) < codes.LEAVING < codes.OUT


def quoted(name: str, pattern: str) -> set[str]:
    source = load_scripts()[name]
    found = re.search(pattern, source)
    assert found is not None
    return set(re.findall(r"'(\w+)'", found.group()))


@pytest.mark.parametrize(
    ("script", "known"),
    [
        ("commit", codes.COMMIT_OUTCOMES),
        ("release", codes.RELEASE_OUTCOMES),
        ("complete", codes.COMPLETE_OUTCOMES),
        ("end_job", codes.END_OUTCOMES),
        ("heartbeat", codes.BEAT_PROBLEMS),
    ],
)
def test_the_words_of_a_script_are_those_that_python_reads(
    script: str, known: dict[bytes, int]
) -> None:
    words = quoted(script, r"-- Returns (?:.*\n)(?:--   .*\n)*")
    assert words == {word.decode() for word in known}


def test_every_refusal_of_a_pool_script_has_an_error_of_its_own() -> None:
    words = {
        word
        for source in load_scripts().values()
        if "session_refusal" not in source and "room_refusal" not in source
        for word in re.findall(r"'([A-Z]+_[A-Z_]+)'", source)
    }
    assert words >= {"NODE_NOT_FOUND", "NO_CAPABLE_NODE", "QUOTA_EXCEEDED", "BOUND_NODE_FULL"}
    for word in words - {"QUOTA_EXCEEDED"}:
        error = refusal([word.encode(), b"full", b"1"], "zh->en", "n1")
        assert reason_name(error.reason) == word


def test_the_states_of_a_job_are_those_that_python_reads() -> None:
    source = (LUA / "lib/job.lua").read_text()
    listed = re.search(r"--   state +(.+)", source)
    assert listed is not None
    states = set(re.findall(r"\w+", listed.group(1))) - {"or"}
    assert states == {state.decode() for state in codes.JOB_STATES}
