"""What a person at a terminal reads if a command fails, and what a pipe gets."""

import click
import pytest

from lingua_scheduler.cli.app import app
from lingua_scheduler.cli.colour import can_rewrite, colour_wanted
from lingua_scheduler.cli.failures import Failure, report, told_lines

FAILURE = Failure(
    "cannot reach the pool service at 127.0.0.1:7710: connection refused",
    reason="UNAVAILABLE",
    exit_code=3,
    hint="Is it running? Start it with 'lingua up', or set LINGUA_POOL_ADDRESS or --pool",
    tip="did you mean demo-1?",
)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_person_reads_what_was_wrong_and_then_what_to_do(width: int) -> None:
    lines = [click.unstyle(line) for line in told_lines(FAILURE, width=width)]
    assert max(map(len, lines)) <= width
    assert lines[0].startswith("Error: cannot reach the pool service")
    (at,) = [at for at, line in enumerate(lines) if line.startswith("Hint: ")]
    assert lines[at] == "Hint: Did you mean demo-1?"
    assert all(line.startswith("  ") for line in (*lines[1:at], *lines[at + 1 :]))
    words = " ".join(" ".join(lines[at + 1 :]).split())
    assert words == FAILURE.hint


def test_a_pipe_gets_message_and_hint_on_one_line_and_no_tip(
    capsys: pytest.CaptureFixture[str],
) -> None:
    report(FAILURE, as_json=False)
    assert capsys.readouterr().err == f"Error: {FAILURE.message}. {FAILURE.hint}\n"
    report(Failure("no", reason="X", hint="'lingua jobs list' shows them"), as_json=False)
    assert capsys.readouterr().err == "Error: no; 'lingua jobs list' shows them\n"


def test_json_has_message_and_hint_and_no_tip(capsys: pytest.CaptureFixture[str]) -> None:
    report(FAILURE, as_json=True)
    told = f'"reason": "UNAVAILABLE", "message": "{FAILURE.message}. {FAILURE.hint}"'
    assert capsys.readouterr().err == f'{{"error": {{{told}}}}}\n'


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("noodes list", "'nodes'"), ("nodes lst", "'list'"), ("nodes list --heath x", "'--health'")],
)
def test_a_mistyped_word_is_answered_with_the_nearest(
    typed: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        app(typed.split())
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert "Did you mean" in told
    assert meant in told


def test_wrong_usage_has_the_same_form_with_the_usage_as_the_hint() -> None:
    context = click.Context(app, info_name="lingua")
    error = click.UsageError("give either WAV files or --mic", context)
    lines = [click.unstyle(line) for line in told_lines(error, width=80)]
    assert lines == [
        "Error: give either WAV files or --mic",
        "Hint: Usage: lingua [OPTIONS] COMMAND [ARGS]...",
        "      'lingua --help' tells more",
    ]


@pytest.mark.parametrize("variable", ["NO_COLOR", "TERM"])
def test_the_environment_forbids_colours(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert colour_wanted() is None
    monkeypatch.setenv(variable, "dumb")
    assert colour_wanted() is False
    assert not can_rewrite()
