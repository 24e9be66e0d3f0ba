"""`lingua` itself, `lingua config`, and refusals of `lingua serve`."""

import json
import os
import subprocess
import sys
from importlib import metadata

import pytest
from click.testing import CliRunner, Result

from lingua_scheduler.cli import explain
from lingua_scheduler.cli.app import COMMANDS, app
from lingua_scheduler.cli.views.output import ago, duration, one_line, span
from lingua_scheduler.services.runtime.errors import NoCapableNodeError, SettingsError
from lingua_scheduler.services.runtime.redis.embedded.binary import EmbeddedRedisError


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("LINGUA_")]:
        monkeypatch.delenv(name)


def run(*args: str, **env: str) -> Result:
    return CliRunner(env=env).invoke(app, args, prog_name="lingua")


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_names_the_commands_and_the_exit_codes(option: str) -> None:
    result = run(option)
    assert result.exit_code == 0
    assert all(name in result.stdout for name in COMMANDS)
    assert "3  the service is unreachable" in result.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_the_line_in_the_help_is_the_commands_own(name: str) -> None:
    result = run(name, "-h")
    assert result.exit_code == 0
    assert COMMANDS[name] in result.stdout


def test_help_loads_neither_grpc_nor_pydantic() -> None:
    script = (
        "import sys\n"
        "from lingua_scheduler.cli.app import app\n"
        "try: app(['--help'])\n"
        "except SystemExit: pass\n"
        "print(sorted({'grpc', 'pydantic', 'redis'} & set(sys.modules)))\n"
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert out.stdout.splitlines()[-1] == "[]"


def test_version_is_that_of_the_distribution() -> None:
    result = run("--version")
    assert result.stdout.startswith("lingua-scheduler ")


def test_version_also_tells_what_is_installed() -> None:
    assert run("version").stdout.splitlines()[0].split() == run("--version").stdout.split()
    told = json.loads(run("version", "--json").stdout)
    assert told["services"] is True
    assert told["versions"]["grpcio"] == metadata.version("grpcio")


@pytest.mark.parametrize(
    ("words", "completed"),
    [("lingua no", "nodes"), ("lingua nodes dr", "drain"), ("lingua speak --fr", "--from")],
)
def test_shells_complete_commands_and_options(words: str, completed: str) -> None:
    last = str(words.count(" "))
    environ = {"_LINGUA_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": last}
    said = subprocess.run(
        [sys.executable, "-c", "from lingua_scheduler.cli import main; main()"],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.split() == [f"plain,{completed}"]


def test_an_unknown_command_is_wrong_usage() -> None:
    result = run("nodez")
    assert result.exit_code == 2
    assert "nodez" in result.stderr


def test_config_shows_value_origin_and_meaning_by_group() -> None:
    result = run("config", LINGUA_PROFILE="efficient", LINGUA_POOL_SIZE="50")
    lines = result.stdout.splitlines()
    assert [line for line in lines if line.startswith("[")][:2] == ["[general]", "[redis]"]
    sample = next(line for line in lines if line.startswith("LINGUA_SAMPLE_K "))
    assert sample.split()[:4] == ["LINGUA_SAMPLE_K", "40", "profile", "efficient"]
    size = next(line for line in lines if line.startswith("LINGUA_POOL_SIZE "))
    assert size.split()[:3] == ["LINGUA_POOL_SIZE", "50", "environment"]
    assert size.endswith("nodes per shard of a pool")
    assert result.exit_code == 0


def test_config_as_json_has_typed_values_and_no_password() -> None:
    result = run("config", "--json", LINGUA_REDIS_URL="redis://user:hush@db:6379/0")
    rows = {row["variable"]: row for row in json.loads(result.stdout)["settings"]}
    assert rows["LINGUA_SAMPLE_K"]["value"] == 20
    assert rows["LINGUA_LOAD_THRESHOLD"]["value"] == 0.95
    assert rows["LINGUA_REDIS_URL"]["value"] == "redis://user:***@db:6379/0"
    assert rows["LINGUA_REDIS_URL"]["origin"] == "environment"
    assert "hush" not in result.output


def test_config_never_shows_a_password() -> None:
    result = run("config", LINGUA_REDIS_URL="redis://:hush@db:6379/0")
    assert "hush" not in result.output


def test_config_warns_of_a_variable_that_sets_nothing_and_names_the_nearest() -> None:
    result = run("config", "--json", LINGUA_SAMPLEK="3")
    assert "LINGUA_SAMPLEK" in result.stderr
    assert "did you mean LINGUA_SAMPLE_K?" in result.stderr
    assert json.loads(result.stdout)["unknown_variables"] == [
        {"variable": "LINGUA_SAMPLEK", "nearest": "LINGUA_SAMPLE_K"}
    ]
    assert result.exit_code == 0


def test_a_bad_value_is_exit_code_2_with_the_variable_and_what_is_allowed() -> None:
    result = run("config", LINGUA_SAMPLE_K="many")
    assert result.exit_code == 2
    assert "LINGUA_SAMPLE_K='many': must be a whole number from 1 to 1000" in result.stderr
    assert result.stdout == ""


def test_a_bad_value_with_json_is_an_object_on_stderr() -> None:
    result = run("config", "--json", LINGUA_SAMPLE_K="many")
    assert json.loads(result.stderr)["error"]["reason"] == "SETTINGS"


def test_a_bad_setting_stops_a_client_command_too() -> None:
    result = run("nodes", "list", LINGUA_POOL_ADDRESS="nowhere")
    assert result.exit_code == 2
    assert "LINGUA_POOL_ADDRESS" in result.stderr


def test_serve_without_a_redis_says_what_to_set() -> None:
    result = run("serve", "pool")
    assert result.exit_code == 2
    assert "LINGUA_REDIS_URL is not set" in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("error", "code", "reason"),
    [
        (SettingsError("LINGUA_X: bad"), 2, "SETTINGS"),
        (NoCapableNodeError("none"), 1, "NO_CAPABLE_NODE"),
        (EmbeddedRedisError("no server"), 1, "EMBEDDED_REDIS"),
        (PermissionError(13, "Permission denied", "/data"), 1, "SYSTEM"),
        (ModuleNotFoundError("redis", name="redis"), 1, "NOT_INSTALLED"),
        (ModuleNotFoundError("no part", name="lingua_scheduler.x"), 1, "INTERNAL"),
        (ZeroDivisionError("division by zero"), 1, "INTERNAL"),
    ],
)
def test_every_exception_has_words_and_an_exit_code(
    error: Exception, code: int, reason: str
) -> None:
    failure = explain.explain(error)
    assert failure.exit_code == code
    assert failure.reason == reason
    assert str(error) in failure.message


@pytest.mark.parametrize(
    ("length_ms", "shown"),
    [
        (-5, "0s"),
        (999, "0s"),
        (119_000, "119s"),
        (120_000, "2m"),
        (7_200_000, "2h"),
        (172_800_000, "2d"),
    ],
)
def test_a_span_is_in_its_largest_unit(length_ms: int, shown: str) -> None:
    assert span(length_ms) == shown


def test_a_node_that_was_never_heard_is_not_heard_since_1970() -> None:
    assert ago(0) == "never"


@pytest.mark.parametrize(
    ("length_ms", "shown"),
    [
        (-5, "0ms"),
        (999, "999ms"),
        (1234, "1.23s"),
        (12_345, "12.3s"),
        (119_000, "119.0s"),
        (120_000, "2m"),
    ],
)
def test_a_duration_has_three_digits_or_so(length_ms: int, shown: str) -> None:
    assert duration(length_ms) == shown


def test_what_others_wrote_is_one_line_and_cannot_steer_the_terminal() -> None:
    assert one_line("out of\nmemory\x1b[2J at 你好") == "out of memory?[2J at 你好"
