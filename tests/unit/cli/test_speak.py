"""`lingua speak` without a gateway: refusals, and the output for events."""

import json
import socket
import struct
import wave
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from lingua_scheduler import sdk
from lingua_scheduler.cli.app import app
from lingua_scheduler.cli.speak.speech_files import SpeechFolder
from lingua_scheduler.cli.speak.speech_view import SpeechView
from lingua_scheduler.cli.views.live_line import LiveLine, end_of
from lingua_scheduler.sdk import ResultKind


def wav(
    path: Path, *, width: int = 2, rate: int = 16000, channels: int = 1, frames: int = 1600
) -> Path:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(bytes(width * channels * frames))
    return path


def speak(*args: str | Path) -> Result:
    return CliRunner().invoke(app, ["speak", "--from", "en", "--to", "es", *map(str, args)])


def result_of(index: int = 0, kind: ResultKind = ResultKind.TRANSLATED, **fields: Any) -> Any:
    values: dict[str, Any] = {"src": "en", "tgt": "es", "node_id": "n1", "attempts": 1}
    return sdk.Result(index=index, kind=kind, **{**values, **fields})


@pytest.fixture
def view() -> SpeechView:
    return SpeechView(folder=None, words=True, live=False)


# ---- what is refused ----


@pytest.mark.parametrize(
    ("form", "problem"),
    [
        ({"width": 1}, "8-bit samples; they must have 16"),
        ({"width": 3}, "24-bit samples; they must have 16"),
        ({"rate": 96000}, "96000 must be from 8000 to 48000"),
        ({"rate": 4000}, "4000 must be from 8000 to 48000"),
        ({"channels": 3}, "channels: 3 must be 1 or 2"),
    ],
)
def test_audio_that_cannot_be_used_is_exit_code_2_and_says_how_to_convert_it(
    tmp_path: Path, form: dict[str, int], problem: str
) -> None:
    path = wav(tmp_path / "a b.wav", **form)
    result = speak(path)
    assert result.exit_code == 2
    assert problem in result.stderr
    assert "Expected WAV files of 16-bit PCM, from 8 to 48 kHz, with one channel or two" in (
        result.stderr
    )
    assert f"ffmpeg -i '{path}' -ac 1 -ar 16000 -c:a pcm_s16le" in result.stderr
    assert result.stdout == ""


def test_samples_that_are_no_integers_are_refused_too(tmp_path: Path) -> None:
    path = tmp_path / "float.wav"
    form = struct.pack("<HHIIHH", 3, 1, 16000, 64000, 4, 32)
    data = bytes(64)
    chunks = b"fmt " + struct.pack("<I", 16) + form + b"data" + struct.pack("<I", 64) + data
    path.write_bytes(b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks)
    result = speak(path)
    assert result.exit_code == 2
    assert "is not a WAV file of PCM" in result.stderr
    assert "ffmpeg" in result.stderr


@pytest.mark.parametrize("content", [b"", b"RIFF", b"hello, this is no audio at all"])
def test_a_file_that_is_no_wav_is_exit_code_2(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.wav"
    path.write_bytes(content)
    result = speak(path)
    assert result.exit_code == 2
    assert f"{path} is not a WAV file of PCM" in result.stderr
    assert ": ." not in result.stderr


def test_a_file_without_audio_is_exit_code_2(tmp_path: Path) -> None:
    path = wav(tmp_path / "x.wav", frames=0)
    result = speak(path)
    assert result.exit_code == 2
    assert f"{path} contains no audio" in result.stderr


def test_a_header_that_promises_audio_is_no_audio(tmp_path: Path) -> None:
    path = wav(tmp_path / "x.wav")
    path.write_bytes(path.read_bytes()[:44])
    assert f"{path} contains no audio" in speak(path).stderr


def test_a_missing_file_is_exit_code_2(tmp_path: Path) -> None:
    result = speak(tmp_path / "x.wav")
    assert result.exit_code == 2
    assert "does not exist" in result.stderr


def test_files_of_two_formats_are_not_one_session(tmp_path: Path) -> None:
    first, second = wav(tmp_path / "1.wav", rate=8000), wav(tmp_path / "2.wav", rate=16000)
    result = speak(first, second)
    assert result.exit_code == 2
    assert "2.wav has 1 channel(s) at 16000 Hz, but" in result.stderr
    assert "-ac 1 -ar 8000" in result.stderr


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (["--to", "e"], "'e' must be a language code"),
        (["--tenant", "a b"], "tenant: 'a b' must be"),
        (["--save", ".", "--text-only"], "--text-only requests none"),
        (["--pause", "-1"], "--pause"),
    ],
)
def test_options_that_cannot_be_are_wrong_usage(
    tmp_path: Path, args: list[str], problem: str
) -> None:
    result = speak(wav(tmp_path / "x.wav"), *args)
    assert result.exit_code == 2
    assert problem in result.stderr


def test_a_folder_that_cannot_be_made_is_wrong_usage_and_nothing_is_spoken(tmp_path: Path) -> None:
    path = wav(tmp_path / "x.wav")
    result = speak(path, "--save", path / "out")
    assert result.exit_code == 2
    assert "out" in result.stderr


def test_a_gateway_that_is_not_there_is_exit_code_3_at_once(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as once:
        address = f"127.0.0.1:{once.getsockname()[1]}"
    result = speak(wav(tmp_path / "x.wav"), "--gateway", address)
    assert result.exit_code == 3
    assert f"cannot reach the session gateway at {address}: connection refused" in result.stderr
    assert "Start it with 'lingua up', or set LINGUA_GATEWAY_ADDRESS or --gateway" in result.stderr


def test_with_json_a_failure_is_an_object_on_stderr_and_nothing_is_on_stdout(
    tmp_path: Path,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        args = ("--gateway", address, "--timeout", "0.1", "--json")
        result = speak(wav(tmp_path / "x.wav"), *args)
    assert result.exit_code == 3
    assert json.loads(result.stderr)["error"]["reason"] == "DEADLINE_EXCEEDED"
    assert result.stdout == ""


# ---- what is shown ----


def test_a_result_is_shown_with_its_texts_its_node_and_where_the_time_went(
    view: SpeechView, capsys: pytest.CaptureFixture[str]
) -> None:
    timings = sdk.ResultTimings(
        audio_ms=1500,
        hangover_ms=200,
        dispatch_ms=8,
        node_ms=310,
        deliver_ms=2,
        stages=(sdk.Timing(stage=sdk.Stage.ASR, started_ms=0, took_ms=120),),
    )
    texts = sdk.Texts(source="helo", repaired="hello", translated="hola\nmundo")
    view.hear(result_of(3, texts=texts, attempts=2, joined=(1, 2), lost=(0,), timings=timings))
    lines = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        ["#3", "translated  en->es  by n1, 2 attempts"],
        ["recognised", "helo"],
        ["repaired", "hello"],
        ["translated", "hola mundo"],
        ["joined", "with #1 #2"],
        ["lost", "what was held of #0"],
        [
            "time",
            "audio 1.50s, hangover 200ms, dispatch 8ms, node 310ms, deliver 2ms"
            " (at the node: asr 120ms)",
        ],
    ]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (ResultKind.HELD, "held  en->es  by n1, 1 attempt"),
        (ResultKind.NO_SPEECH, "no speech  en->es  by n1, 1 attempt"),
        (ResultKind.UNSPECIFIED, "of an unknown kind  en->es  by n1, 1 attempt"),
    ],
)
def test_a_result_without_texts_is_shown_as_what_it_is(
    view: SpeechView, capsys: pytest.CaptureFixture[str], kind: ResultKind, words: str
) -> None:
    view.hear(result_of(kind=kind))
    shown = capsys.readouterr().out
    assert words in shown
    assert "translated" not in shown


def test_a_missing_one_is_shown_with_its_reason(
    view: SpeechView, capsys: pytest.CaptureFixture[str]
) -> None:
    view.hear(sdk.Missing(index=1, src="en", tgt="es", reason="JOB_TIMEOUT", message="too late"))
    assert [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()] == [
        ["#1", "missing  en->es"],
        ["because", "JOB_TIMEOUT: too late"],
    ]


def test_the_summary_counts_by_what_became_of_them(view: SpeechView) -> None:
    assert view.summary() == "0 utterances"
    view.hear(result_of(0, ResultKind.HELD))
    view.hear(result_of(1))
    assert view.summary() == "2 utterances: 1 held, 1 translated"
    view.hear(sdk.Missing(index=2, src="en", tgt="es", reason="JOB_TIMEOUT"))
    assert view.summary() == "3 utterances: 1 held, 1 translated, 1 missing"
    view.hear(result_of(3, lost=(0,)))
    told = "4 utterances: 1 held, 2 translated, 1 missing, 1 held and lost"
    assert view.summary() == told
    assert view.document()["results"][-1]["lost"] == [0]


def test_a_folder_that_stays_empty_is_explained(tmp_path: Path) -> None:
    view = SpeechView(folder=SpeechFolder(tmp_path), words=True, live=False)
    view.hear(result_of(0, ResultKind.HELD))
    assert view.unsaved() == "--save: nothing was saved, because nothing was translated"
    view.hear(result_of(1))
    assert view.unsaved() == "--save: nothing was saved, because the nodes sent text without speech"
    opus = sdk.AudioFormat(encoding=sdk.Encoding.OPUS)
    view.hear(result_of(2, speech=b"x", speech_format=opus))
    told = "--save: nothing was saved, because the nodes sent speech that is not PCM"
    assert view.unsaved() == told
    view.hear(result_of(3, speech=bytes(320), speech_format=sdk.AudioFormat()))
    assert view.unsaved() == ""


def test_without_a_folder_nothing_is_said_of_one(view: SpeechView) -> None:
    assert view.unsaved() == ""


def test_what_happens_on_the_way_is_said_on_stderr_and_not_again_and_again(
    view: SpeechView, capsys: pytest.CaptureFixture[str]
) -> None:
    for attempt, message in ((1, "no node"), (2, "no node"), (3, "it is full")):
        view.hear(
            sdk.Retrying(index=0, src="en", tgt="es", attempt=attempt, reason="X", message=message)
        )
    view.hear(sdk.Reconnecting(why="the stream ended"))
    view.hear(sdk.Resumed(away=1.26, chunks_again=3))
    view.hear(sdk.Problem(reason="BAD_AUDIO", message="odd bytes"))
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.splitlines() == [
        "#0: attempt 1 failed: no node; it is tried again",
        "#0: attempt 3 failed: it is full; it is tried again",
        "Connection lost (the stream ended); reconnecting",
        "Reconnected after 1.3 s; the session continues",
        "The gateway reports BAD_AUDIO: odd bytes",
    ]


def partial(text: str, index: int = 0) -> sdk.PartialText:
    return sdk.PartialText(index=index, src="en", tgt="es", texts=sdk.Texts(source=text))


def test_partial_texts_are_not_shown_off_a_terminal(
    view: SpeechView, capsys: pytest.CaptureFixture[str]
) -> None:
    view.hear(partial("hel"))
    assert capsys.readouterr().out == ""


def test_on_a_terminal_partial_texts_replace_each_other_and_make_way_for_the_result(
    capsys: pytest.CaptureFixture[str],
) -> None:
    view = SpeechView(folder=None, words=True, live=True)
    view.hear(partial("hel"))
    view.hear(partial("hello"))
    view.hear(result_of())
    view.end()
    shown = capsys.readouterr().out
    clear = "\r\x1b[K"
    assert shown.startswith(f"{clear}#0 ... hel{clear}#0 ... hello{clear}")
    assert shown.count(clear) == 3


def test_a_live_line_never_fills_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "10")
    LiveLine(shown=True).show("0123456789\x1b[2J")
    assert capsys.readouterr().out == "\r\x1b[K56789?[2J"


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [("hello", 9, "hello"), ("hello", 3, "llo"), ("你好吗", 5, "好吗"), ("e\u0301e", 1, "e")],
)
def test_of_a_text_that_is_too_long_the_end_is_shown(text: str, width: int, shown: str) -> None:
    assert end_of(text, width) == shown


# ---- what is kept ----


def test_speech_is_saved_as_it_came_and_its_file_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    view = SpeechView(folder=SpeechFolder(tmp_path / "a" / "b"), words=True, live=False)
    audio = sdk.AudioFormat(sample_rate_hz=8000, channels=2)
    view.hear(result_of(7, speech=bytes(range(200)) * 160, speech_format=audio))
    path = tmp_path / "a" / "b" / "utterance-0007.wav"
    assert f"1.00s in {path}" in capsys.readouterr().out
    with wave.open(str(path), "rb") as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (8000, 2, 2)
        assert file.readframes(10_000) == bytes(range(200)) * 160
    assert view.document()["results"][0]["speech_file"] == str(path)


def test_speech_that_no_wav_file_can_hold_is_not_saved_and_said_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    view = SpeechView(folder=SpeechFolder(tmp_path), words=True, live=False)
    opus = sdk.AudioFormat(encoding=sdk.Encoding.OPUS, sample_rate_hz=48000)
    view.hear(result_of(speech=b"packets", speech_format=opus))
    assert "its speech is no PCM" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_document_has_all_but_the_audio_and_nothing_is_printed_beside_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    view = SpeechView(folder=None, words=False, live=False)
    view.start("Session s1")
    timings = sdk.ResultTimings(audio_ms=1500)
    speech = {"speech": bytes(320), "speech_format": sdk.AudioFormat()}
    view.hear(result_of(texts=sdk.Texts(source="hello"), timings=timings, **speech))
    view.hear(sdk.Missing(index=1, src="en", tgt="es", reason="JOB_TIMEOUT", message="late"))
    view.hear(sdk.Reconnecting(why="the stream ended"))
    assert capsys.readouterr() == ("", "")
    told = json.loads(json.dumps(view.document()))
    assert told["missing"] == [
        {
            "index": 1,
            "pair": {"src": "en", "tgt": "es"},
            "reason": "JOB_TIMEOUT",
            "message": "late",
            "lost": [],
        }
    ]
    (result,) = told["results"]
    assert result["kind"] == "TRANSLATED"
    assert result["texts"]["source"] == "hello"
    assert result["timings"]["audio_ms"] == 1500
    assert result["speech_bytes"] == 320
    assert "speech" not in result
