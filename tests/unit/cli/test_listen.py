"""`lingua listen` and `lingua speak --room`: usage, and the output for what is said."""

import json
import wave
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from lingua_scheduler.cli.app import app
from lingua_scheduler.cli.failures import FAILED, NOT_FOUND, UNREACHABLE, USAGE
from lingua_scheduler.cli.speak import heard_view
from lingua_scheduler.cli.speak.heard_view import HeardView
from lingua_scheduler.cli.speak.room_access import not_let_in
from lingua_scheduler.cli.speak.speech_files import SpeechFolder
from lingua_scheduler.cli.speak.speech_view import SpeechView
from lingua_scheduler.sdk import (
    AudioFormat,
    LanguageMissing,
    Listening,
    ListeningChanged,
    NotSaid,
    Problem,
    Receipt,
    Reconnecting,
    Rejoined,
    ResultKind,
    RoomRefusedError,
    RoomUnavailableError,
    Said,
    Texts,
)


def run(*args: str, **env: str) -> Result:
    return CliRunner(env={"LINGUA_ROOM_TOKEN": None, **env}).invoke(app, args, prog_name="lingua")


def said(index: int = 4, **fields: object) -> Said:
    values: dict[str, object] = {
        "speaker": "Ana",
        "session_id": "s1",
        "language": "es",
        "spoken_language": "en",
        "kind": ResultKind.TRANSLATED,
        "texts": Texts(source="hello", translated="hola"),
    }
    return Said(room_index=index, **{**values, **fields})  # type: ignore[arg-type]


def text_of(*events: object, capsys: pytest.CaptureFixture[str]) -> list[str]:
    view = HeardView(folder=None, original=False, as_json=False)
    for event in events:
        view.hear(event)  # type: ignore[arg-type]
    return capsys.readouterr().out.splitlines()


# ---- usage ----


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ("listen --language es --room-token t", "--room"),
        ("listen --room r1 --room-token t", "--language"),
        ("listen --room r1 --language es", "LINGUA_ROOM_TOKEN"),
        ("listen --room r1 --language es --room-token t --original", "--speech-dir"),
        ("listen --room r1 --language 1 --room-token t", "language code"),
        ("speak talk.wav --from en", "--to and --room"),
        ("speak talk.wav --from en --to es --room r1", "--to and --room"),
        ("speak talk.wav --from en --room r1", "LINGUA_ROOM_TOKEN"),
        ("speak talk.wav --from en --to es --name Ana", "--name needs --room"),
        ("speak talk.wav --from en --room r1 --room-token t --save d", "do not go with --room"),
        ("speak talk.wav --from en --room r1 --room-token t --tenant a", "do not go with --room"),
    ],
)
def test_wrong_usage_is_named(
    args: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("talk.wav").write_bytes(b"")
    result = run(*args.split())
    assert result.exit_code == 2
    assert problem in result.stderr


def test_a_token_that_is_none_is_wrong_usage_and_not_shown() -> None:
    result = run("listen", "--room", "r1", "--language", "es", LINGUA_ROOM_TOKEN="se cret")
    assert result.exit_code == 2
    assert "token" in result.stderr
    assert "cret" not in result.stderr


# ---- text ----


def test_each_utterance_is_a_line_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    long = "palabra " * 30
    lines = text_of(
        said(),
        said(5, texts=Texts(translated=long), speaker=""),
        said(6, replayed=True),
        capsys=capsys,
    )
    assert lines == ["#4 Ana: hola", f"#5: {long.strip()}", "#6 Ana (earlier): hola"]


def test_what_has_no_text_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    lines = text_of(
        said(0, kind=ResultKind.HELD, texts=Texts()),
        said(1, kind=ResultKind.NO_SPEECH, texts=Texts()),
        said(2, texts=Texts(), language="en"),
        said(3, lost=(0, 1)),
        NotSaid(
            room_index=4,
            until_index=5,
            language="es",
            reason="JOB_TIMEOUT",
            message="late",
            speaker="Ana",
        ),
        NotSaid(room_index=5, until_index=9, language="es", reason="NOT_KEPT"),
        capsys=capsys,
    )
    assert lines == [
        "#0 Ana: (unfinished: a later utterance has its text)",
        "#1 Ana: (no speech)",
        "#2 Ana: (no text)",
        "#3 Ana: hola",
        "    lost: what was held of #0 #1",
        "#4 Ana: (missing: JOB_TIMEOUT: late)",
        "#5 to #8: (missing: NOT_KEPT)",
    ]


def test_foreign_text_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = text_of(
        said(speaker="A\x1b[2J", texts=Texts(translated="ho\x07la\nadios")), capsys=capsys
    )
    assert line == "#4 A?[2J: ho?la adios"


@pytest.mark.parametrize("text", ["palabra " * 30, "你好世界" * 40])
def test_a_terminal_gets_lines_that_fit(
    text: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setattr(heard_view, "terminal_width", lambda: 80)
    styled = text_of(said(texts=Texts(translated=text)), capsys=capsys)
    lines = [click.unstyle(line) for line in styled]
    assert len(lines) > 2
    assert all(heard_view.cell_len(line) <= 80 for line in lines)
    assert "".join("".join(lines).split()) == "#4Ana:" + "".join(text.split())


def test_other_events_are_notes_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    view = HeardView(folder=None, original=False, as_json=False)
    for event in (
        Reconnecting(why="broken"),
        Rejoined(away=1.25, position=7),
        Problem(reason="OUT_OF_ORDER", message="the server skipped utterance 6"),
        ListeningChanged(listening=Listening(language="fr"), position=9),
    ):
        view.hear(event)
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.splitlines() == [
        "Connection lost (broken); reconnecting",
        "Reconnected after 1.2 s; continuing with #7",
        "The gateway reports OUT_OF_ORDER: the server skipped utterance 6",
        "Listening to fr from #9 on",
    ]


def test_the_summary_counts_and_says_how_it_ended(capsys: pytest.CaptureFixture[str]) -> None:
    view = HeardView(folder=None, original=False, as_json=False)
    view.hear(said())
    assert view.summary(closed=True) == "The room was closed: 1 utterance."
    view.hear(NotSaid(room_index=5, until_index=9, language="es", reason="NOT_KEPT"))
    assert view.summary(closed=False) == "Left the room: 1 utterance, 4 missing."


# ---- JSON and files ----


def test_json_is_an_object_for_each_event(capsys: pytest.CaptureFixture[str]) -> None:
    view = HeardView(folder=None, original=False, as_json=True)
    view.start("nothing")
    for event in (
        said(speech=b"abcd", published_ms=9, joined=(3,)),
        NotSaid(room_index=5, until_index=6, language="es", reason="JOB_TIMEOUT", message="late"),
        Reconnecting(why="broken"),
        Rejoined(away=1.25, position=7),
        Problem(reason="X", message="y"),
        ListeningChanged(listening=Listening(language="fr"), position=9),
    ):
        view.hear(event)
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["event"] for each in told] == [
        *("said", "not_said", "reconnecting", "rejoined", "problem", "changed"),
    ]
    assert (told[0]["text"], told[0]["speech_bytes"], told[0]["joined"]) == ("hola", 4, [3])
    assert (told[1]["reason"], told[1]["until_index"]) == ("JOB_TIMEOUT", 6)


@pytest.mark.parametrize("original", [False, True])
def test_speech_is_written_to_a_file_for_each_utterance(
    original: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = SpeechFolder(tmp_path / "out", option="--speech-dir")
    view = HeardView(folder=folder, original=original, as_json=False)
    pcm = AudioFormat()
    view.hear(said(speech=b"12", speech_format=pcm, original_audio=b"1234", original_format=pcm))
    view.hear(said(5))
    # Somebody speaks the listener's own language.
    view.hear(said(6, original_audio=b"123456", original_format=pcm))
    with wave.open(str(tmp_path / "out" / "utterance-0006.wav"), "rb") as file:
        assert file.getnframes() == 3
    with wave.open(str(tmp_path / "out" / "utterance-0004.wav"), "rb") as file:
        assert file.getnframes() == (2 if original else 1)
    assert len(list((tmp_path / "out").iterdir())) == 2
    assert "utterance-0004.wav" in capsys.readouterr().out


# ---- failures ----


@pytest.mark.parametrize(
    ("reason", "code", "hint"),
    [
        ("ROOM_NOT_FOUND", NOT_FOUND, "lingua rooms create"),
        ("ROOM_CLOSED", FAILED, "lingua rooms create"),
        ("ROOM_FULL", FAILED, "leave first"),
        ("PERMISSION_DENIED", USAGE, "lingua rooms token r1 --role listener"),
        ("UNAUTHENTICATED", USAGE, "LINGUA_ROOM_TOKEN"),
        ("INVALID_MESSAGE", USAGE, "said so"),
        ("INTERNAL", FAILED, "said so"),
    ],
)
def test_a_refusal_says_what_to_do(reason: str, code: int, hint: str) -> None:
    error = RoomRefusedError(reason, "the gateway said so")
    failure = not_let_in(error, room_id="r1", role="listener", address="h:1")
    assert (failure.reason, failure.exit_code) == (reason, code)
    assert "the gateway said so" in failure.message
    assert hint in failure.message


def test_the_room_is_named_once_and_a_full_one_says_what_would_help() -> None:
    error = RoomRefusedError("ROOM_FULL", "room 'r1' has reached its limit of 3 languages")
    failure = not_let_in(error, room_id="r1", role="listener", address="h:1")
    assert failure.message == (
        "room 'r1' has reached its limit of 3 languages. Somebody has to leave first, or listen to "
        "a language that others listen to"
    )


def test_a_gateway_that_is_away_is_exit_code_3() -> None:
    error = RoomUnavailableError("UNREACHABLE", "no gateway answered")
    failure = not_let_in(error, room_id="r1", role="listener", address="h:1")
    assert failure.exit_code == UNREACHABLE
    assert "h:1" in failure.message


# ---- receipts of a speaker ----


def receipt(index: int, *delivered: str, missing: tuple[LanguageMissing, ...] = ()) -> Receipt:
    return Receipt(
        index=index,
        src="en",
        tgt="",
        kind=ResultKind.UNSPECIFIED,
        room_index=40 + index,
        delivered=delivered,
        missing=missing,
    )


def test_a_speaker_sees_in_which_languages_it_was_heard(
    capsys: pytest.CaptureFixture[str],
) -> None:
    view = SpeechView(folder=None, words=True, live=False)
    late = LanguageMissing(language="de", reason="JOB_TIMEOUT", message="too late")
    view.hear(receipt(0, "es", "fr"))
    view.hear(receipt(1, "es", missing=(late,)))
    view.hear(receipt(2))
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        "#0 delivered en->es fr",
        "in the room #40",
        "#1 delivered en->es",
        "in the room #41",
        "missing de, JOB_TIMEOUT: too late",
        "#2 not wanted en->nobody listens",
        "in the room #42",
    ]
    assert view.summary() == (
        "3 utterances: 1 delivered, 1 not in all languages, 1 that nobody listened to"
    )
    assert [each.index for each in view.incomplete] == [1]
    assert view.document()["results"][1] == {
        "index": 1,
        "room_index": 41,
        "language": "en",
        "delivered": ["es"],
        "missing": [{"language": "de", "reason": "JOB_TIMEOUT", "message": "too late"}],
    }
