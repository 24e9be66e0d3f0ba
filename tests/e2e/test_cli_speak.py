"""`lingua speak` and `lingua sessions` with `lingua up` and sample nodes, all real processes."""

import contextlib
import json
import math
import os
import pty
import signal
import subprocess
import time
import wave
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest

from lingua_scheduler.v1 import pool_pb2, pool_pb2_grpc
from tests.support.commands import LINGUA, WITHIN_S, LinguaProcess, Up, becomes, environment, lingua
from tests.support.spoken import spoken

NODES = ("n1", "n2")
RATE = 16000


@dataclass(frozen=True)
class Running:
    """A scheduler with sample nodes for en and es, and where its services are."""

    addresses: dict[str, str]

    def speak(self, *args: str | Path, to: str = "es") -> subprocess.CompletedProcess[str]:
        """`lingua speak` from its start to its end."""
        return lingua("speak", *map(str, args), "--from", "en", "--to", to, **self.addresses)

    def speaking(self, *args: str | Path, to: str = "es", **how: Any) -> "subprocess.Popen[str]":
        """`lingua speak` that goes on."""
        return subprocess.Popen(
            [*LINGUA, "speak", *map(str, args), "--from", "en", "--to", to],
            env=environment(**self.addresses),
            **{"stdin": subprocess.DEVNULL, "text": True, **how},
        )


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with Up(LINGUA_PAUSE_MS="600") as up, contextlib.ExitStack() as stack:
        at = {each["service"]: each["address"] for each in up.ready()["services"]}
        for node_id in NODES:
            stack.enter_context(sample_node(node_id, at["dispatcher"]))
        with grpc.insecure_channel(at["pool"]) as channel:
            stub = pool_pb2_grpc.PoolServiceStub(channel)
            everybody = pool_pb2.ListNodesRequest()
            assert becomes(lambda: len(stub.ListNodes(everybody).nodes) == len(NODES))
        yield Running({f"LINGUA_{name.upper()}_ADDRESS": where for name, where in at.items()})


def sample_node(node_id: str, dispatcher: str) -> LinguaProcess:
    args = ["--id", node_id, "--langs", "en,es", "--dispatcher", dispatcher]
    return LinguaProcess("sample-node", *args)


def tone(seconds: float) -> bytes:
    """A voice that does not end its sentence."""
    count = int(seconds * RATE)
    return array(
        "h", (int(9000 * math.sin(2 * math.pi * 220 * i / RATE)) for i in range(count))
    ).tobytes()


def silence(seconds: float) -> bytes:
    return bytes(int(seconds * RATE) * 2)


def wav(path: Path, audio: bytes) -> Path:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(audio)
    return path


def read_wav(path: Path) -> bytes:
    with wave.open(str(path), "rb") as file:
        return file.readframes(file.getnframes())


def facts(stdout: str) -> list[list[str]]:
    """Each line as its name and the rest."""
    return [line.split(maxsplit=1) for line in stdout.splitlines()]


def test_a_file_is_spoken_and_its_translation_shown_and_saved(
    running: Running, tmp_path: Path
) -> None:
    audio = tone(0.8) + silence(0.2)
    path = wav(tmp_path / "hello.wav", audio)
    ended = running.speak(path, "--save", tmp_path / "out")
    assert ended.returncode == 0, ended.stderr
    first, *lines = facts(ended.stdout)
    assert first[0] == "Session"
    assert lines[0][0] == "#0"
    assert lines[0][1] in [f"translated  en->es  by {node}, 1 attempt" for node in NODES]
    assert lines[1] == ["recognised", "Demo: heard 0.8 s of speech."]
    assert lines[2] == ["translated", "Demo: se oyeron 0,8 s de voz."]
    assert lines[3][1].startswith("audio 1.00s, hangover ")
    saved = tmp_path / "out" / "utterance-0000.wav"
    assert lines[4] == ["speech", f"1.00s in {saved}"]
    assert lines[5] == ["1", "utterance: 1 translated."]
    # The sample node says what it heard.
    assert read_wav(saved) == audio


def test_it_takes_as_long_as_the_speech(running: Running, tmp_path: Path) -> None:
    path = wav(tmp_path / "hello.wav", tone(3.0))
    started = time.monotonic()
    ended = running.speak(path)
    assert ended.returncode == 0, ended.stderr
    assert time.monotonic() - started > 3.0


def test_fast_is_faster_than_speech_and_a_long_speech_comes_out_whole(
    running: Running, tmp_path: Path
) -> None:
    path = wav(tmp_path / "long.wav", tone(24.0))
    started = time.monotonic()
    ended = running.speak(path, "--fast", "--json", "--text-only")
    assert time.monotonic() - started < 24.0
    assert ended.returncode == 0, ended.stderr
    *held, last = json.loads(ended.stdout)["results"]
    assert [each["kind"] for each in held] == ["HELD", "HELD"]
    assert last["texts"]["source"] == "Demo: heard 24.0 s of speech."
    assert last["joined"] == [0, 1]
    assert len({each["node_id"] for each in (*held, last)}) == 1
    assert last["speech_bytes"] == 0


def test_json_is_one_document_with_all_but_the_audio(running: Running, tmp_path: Path) -> None:
    path = wav(tmp_path / "hello.wav", tone(0.5))
    ended = running.speak(path, "--json", "--tenant", "t1")
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)
    assert told["whole"] is True
    assert told["missing"] == []
    (result,) = told["results"]
    assert result["index"] == 0
    assert result["pair"] == {"src": "en", "tgt": "es"}
    assert result["texts"]["source"] == "Demo: heard 0.5 s of speech."
    assert result["texts"]["translated"] == "Demo: se oyeron 0,5 s de voz."
    assert result["timings"]["audio_ms"] == 500
    assert result["timings"]["node_ms"] > 0
    assert result["speech_bytes"] == 16000
    shown = lingua("jobs", "show", result["job_id"], "--json", **running.addresses)
    job = json.loads(shown.stdout)["job"]
    assert job["tenant"] == "t1"
    assert job["session_id"] == told["session_id"]


@pytest.mark.parametrize("how", [[], ["--fast"]])
def test_files_are_spoken_in_turn_each_an_utterance_of_its_own(
    running: Running, tmp_path: Path, how: list[str]
) -> None:
    audios = [tone(0.7), tone(0.5)]
    paths = [wav(tmp_path / f"{at}.wav", audio) for at, audio in enumerate(audios)]
    ended = running.speak(*paths, "--save", tmp_path, *how)
    assert ended.returncode == 0, ended.stderr
    assert "2 utterances: 2 translated." in ended.stdout
    assert [read_wav(tmp_path / f"utterance-000{at}.wav") for at in (0, 1)] == audios


def test_two_utterances_with_a_pause_between_them(running: Running, tmp_path: Path) -> None:
    paths = [wav(tmp_path / f"{length}.wav", tone(length) + silence(0.3)) for length in (0.5, 0.7)]
    ended = running.speak(*paths, "--pause", "1.2", "--json")
    assert ended.returncode == 0, ended.stderr
    results = json.loads(ended.stdout)["results"]
    assert [each["texts"]["source"] for each in results] == [
        f"Demo: heard {seconds} s of speech." for seconds in (0.5, 0.7)
    ]
    assert [each["kind"] for each in results] == ["TRANSLATED", "TRANSLATED"]


def test_a_pause_within_a_sentence_is_shown_as_held_and_joined(
    running: Running, tmp_path: Path
) -> None:
    paths = [wav(tmp_path / f"{length}.wav", tone(length)) for length in (0.5, 0.7)]
    ended = running.speak(*paths, "--pause", "1.2")
    assert ended.returncode == 0, ended.stderr
    lines = facts(ended.stdout)
    (held,) = (line for line in lines if line[0] == "#0")
    (whole,) = (line for line in lines if line[0] == "#1")
    assert held[1].startswith("held  en->es  by ")
    assert whole[1] == held[1].replace("held", "translated")
    assert ["joined", "with #0"] in lines
    assert "2 utterances: 1 held, 1 translated." in ended.stdout


@pytest.mark.parametrize("how", [[], ["--fast"]])
def test_with_vad_each_silence_in_a_file_ends_an_utterance_and_none_is_sent(
    running: Running, tmp_path: Path, how: list[str]
) -> None:
    audio = silence(0.5) + tone(0.6) + silence(1.5) + tone(0.8) + silence(1.5)
    ended = running.speak(wav(tmp_path / "talk.wav", audio), "--vad", "--json", *how)
    assert ended.returncode == 0, ended.stderr
    results = json.loads(ended.stdout)["results"]
    assert [each["kind"] for each in results] == ["TRANSLATED", "TRANSLATED"]
    # Each with some silence before it and after it.
    assert [round(each["speech_bytes"] / 2 / RATE, 1) for each in results] == [1.7, 1.9]


SOUND_LIBRARY = '''
"""A sound library whose microphone hears a file at the pace of speech, and then silence."""
import os, threading, time, wave

class PortAudioError(Exception):
    pass

def query_devices(kind):
    return {}

class RawInputStream:
    def __init__(self, *, samplerate, channels, dtype, blocksize, callback):
        self._size, self._pace, self._hear = blocksize, blocksize / samplerate, callback
        self._ended = threading.Event()

    def __enter__(self):
        threading.Thread(target=self._run, daemon=True).start()

    def __exit__(self, *_):
        self._ended.set()

    def _run(self):
        with wave.open(os.environ["HEARD"]) as file:
            while not self._ended.wait(self._pace):
                block = file.readframes(self._size)
                self._hear(block + bytes(2 * self._size - len(block)), self._size, None, None)
'''


def test_a_microphone_sends_all_it_hears_and_the_gateway_finds_the_pauses(
    running: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sounddevice.py").write_text(SOUND_LIBRARY)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    talk = spoken() + silence(1.5) + spoken("Thank you very much")
    monkeypatch.setenv("HEARD", str(wav(tmp_path / "talk.wav", talk)))
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with running.speaking("--mic", **pipes) as speaking:
        assert first_line(speaking).startswith("Session ")
        shown: list[str] = []
        # Nobody says that an utterance is over: both end by the silence after them.
        while len([line for line in shown if "translated  en->es" in line]) < 2:
            assert speaking.stdout is not None
            shown.append(speaking.stdout.readline())
            assert shown[-1], speaking.stderr
        speaking.send_signal(signal.SIGINT)
        out, err = speaking.communicate(timeout=WITHIN_S)
    assert speaking.returncode == 0, err
    # The rest is silence, which is not shown.
    assert "no speech  en->es" not in out
    assert "2 translated" in out


def test_of_a_file_that_ends_within_a_sample_all_whole_ones_are_spoken(
    running: Running, tmp_path: Path
) -> None:
    path = wav(tmp_path / "cut.wav", tone(0.6))
    path.write_bytes(path.read_bytes()[:-1])
    ended = running.speak(path, "--save", tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert read_wav(tmp_path / "utterance-0000.wav") == tone(0.6)[:-2]


def test_silence_is_no_speech_and_no_failure(running: Running, tmp_path: Path) -> None:
    ended = running.speak(wav(tmp_path / "hush.wav", silence(0.5)))
    assert ended.returncode == 0, ended.stderr
    assert "no speech  en->es  by " in ended.stdout


def test_an_utterance_without_a_result_is_missing_and_exit_code_1(
    running: Running, tmp_path: Path
) -> None:
    options = ["--langs", "en,de", "--fail-rate", "1", "--count", "3", "--prefix", "bad"]
    with LinguaProcess("sim-nodes", *options, **running.addresses):
        ended = running.speak(wav(tmp_path / "hello.wav", tone(0.5)), to="de")
    assert ended.returncode == 1
    assert ["#0", "missing  en->de"] in facts(ended.stdout)
    assert any(line[0] == "because" and "JOB_FAILED" in line[1] for line in facts(ended.stdout))
    assert "1 utterance: 1 missing." in ended.stdout
    assert "Error: 1 utterance has no result" in ended.stderr


def test_a_direction_without_a_node_is_named_before_anything_is_spoken(
    running: Running, tmp_path: Path
) -> None:
    path = wav(tmp_path / "long.wav", tone(30.0))
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with running.speaking(path, to="fr", **pipes) as speaking:
        assert speaking.stderr is not None
        note = speaking.stderr.readline()
        speaking.kill()
    assert note.startswith("No node can translate en->fr now; the speech waits for one.")
    assert "'lingua sim-nodes --langs en,fr'" in note


def test_a_direction_is_asked_about_only_at_the_scheduler_that_is_spoken_to(
    running: Running, tmp_path: Path
) -> None:
    path = wav(tmp_path / "long.wav", tone(30.0))
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    # The pool service of the settings may be that of another scheduler.
    gateway = running.addresses["LINGUA_GATEWAY_ADDRESS"]
    with running.speaking(path, "--gateway", gateway, to="fr", **pipes) as speaking:
        assert first_line(speaking).startswith("Session ")
        speaking.kill()
        _, err = speaking.communicate(timeout=WITHIN_S)
    assert err == ""


def test_captions_are_what_was_recognised_and_nobody_speaks_them(
    running: Running, tmp_path: Path
) -> None:
    path = wav(tmp_path / "hello.wav", tone(0.8) + silence(0.2))
    ended = running.speak(path, "--text-only", "--json", to="en")
    assert ended.returncode == 0, ended.stderr
    (result,) = json.loads(ended.stdout)["results"]
    heard = "Demo: heard 0.8 s of speech."
    assert (result["texts"]["source"], result["texts"]["translated"]) == (heard, heard)
    assert result["speech_bytes"] == 0


def test_simulated_nodes_speak_the_languages_of_the_examples_and_their_speech_is_saved(
    running: Running, tmp_path: Path
) -> None:
    with LinguaProcess("sim-nodes", "--count", "2", **running.addresses) as simulated:
        # The sample nodes have no zh.
        ended = running.speak(
            wav(tmp_path / "hello.wav", tone(0.5)), "--save", tmp_path / "out", to="zh"
        )
        both = ("--from", "zh", "--to", "zh", "--text-only", "--json")
        captions = lingua("speak", str(tmp_path / "hello.wav"), *both, **running.addresses)
        pools = json.loads(lingua("pools", "--json", **running.addresses).stdout)["pools"]
        simulated.terminate()
        simulated.wait_end(WITHIN_S)
    assert ended.returncode == 0, ended.stderr
    assert "translated  en->zh  by sim-" in ended.stdout
    assert len(read_wav(tmp_path / "out" / "utterance-0000.wav")) == 2 * RATE
    (captioned,) = json.loads(captions.stdout)["results"]
    assert captioned["texts"]["translated"] == captioned["texts"]["source"] == "500 ms, peak 9000"
    served = {f"{each['pair']['src']}->{each['pair']['tgt']}": each["nodes"] for each in pools}
    assert served["en->es"] == len(NODES) + 2


def test_if_there_is_nothing_to_save_it_says_so_and_why(running: Running, tmp_path: Path) -> None:
    ended = running.speak(wav(tmp_path / "hush.wav", silence(0.5)), "--save", tmp_path / "out")
    assert ended.returncode == 0
    assert "--save: nothing was saved, because nothing was translated\n" in ended.stderr


def test_on_a_terminal_what_is_known_so_far_is_shown_live(running: Running, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    path = wav(tmp_path / "hello.wav", tone(2.0))
    speaking = running.speaking(path, "--fast", stdout=theirs, stderr=subprocess.DEVNULL)
    os.close(theirs)
    shown = b""
    # A terminal that nobody writes to any more ends with an error.
    with contextlib.suppress(OSError):
        while piece := os.read(ours, 4096):
            shown += piece
    os.close(ours)
    assert speaking.wait(WITHIN_S) == 0
    live = b"\r\x1b[K#0 ... Demo: heard 0.5 s of speech.\r\x1b[K"
    assert live in shown
    assert b"recognised" in shown.split(live)[1]


def first_line(speaking: "subprocess.Popen[str]") -> str:
    """The session is open when this comes."""
    assert speaking.stdout is not None
    return speaking.stdout.readline()


def test_ctrl_c_ends_the_speech_and_what_was_said_is_delivered(
    running: Running, tmp_path: Path
) -> None:
    path = wav(tmp_path / "long.wav", tone(30.0))
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with running.speaking(path, **pipes) as speaking:
        assert first_line(speaking).startswith("Session ")
        # A second of the speech.
        time.sleep(1.0)
        speaking.send_signal(signal.SIGINT)
        out, err = speaking.communicate(timeout=WITHIN_S)
    assert speaking.returncode == 0, err
    assert "translated  en->es" in out
    assert "1 utterance: 1 translated; not everything was spoken." in out
    assert "Finishing what was said; press Ctrl-C again to end at once." in err


def test_a_second_ctrl_c_ends_it_at_once(running: Running, tmp_path: Path) -> None:
    # Nobody speaks fr, so the first one has a long wait before it.
    path = wav(tmp_path / "hello.wav", tone(30.0))
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with running.speaking(path, to="fr", **pipes) as speaking:
        first_line(speaking)
        # A second of the speech.
        time.sleep(1.0)
        speaking.send_signal(signal.SIGINT)
        assert speaking.stderr is not None
        while "again to end at once" not in (line := speaking.stderr.readline()):
            assert line
        speaking.send_signal(signal.SIGINT)
        assert speaking.wait(WITHIN_S) == 128 + signal.SIGINT


def test_sessions_are_listed_and_shown_as_long_as_they_are_open(
    running: Running, tmp_path: Path
) -> None:
    def ask(*args: str) -> subprocess.CompletedProcess[str]:
        return lingua("sessions", *args, **running.addresses)

    path = wav(tmp_path / "hello.wav", tone(0.5))
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    # Nobody speaks fr, so its utterance waits.
    with running.speaking(path, "--tenant", "t7", to="fr", **pipes) as speaking:
        session_id = first_line(speaking).split()[1]
        listed = ask("list", "--tenant", "t7")
        assert [line.split()[:3] for line in listed.stdout.splitlines()[1:]] == [
            [session_id, "connected", "t7"]
        ]
        assert ask("list", "--tenant", "t8").stdout == "no sessions match\n"
        assert becomes(lambda: ["waiting", "0"] in [line[:2] for line in words(ask, session_id)])
        told = json.loads(ask("show", session_id, "--json").stdout)["session"]
        assert told["next_utterance_index"] == 1
        speaking.kill()
    assert becomes(lambda: ["client", "away"] in words(ask, session_id))
    assert ask("show", "nobody").returncode == 4


def words(ask: Any, session_id: str) -> list[list[str]]:
    return [line.split() for line in ask("show", session_id).stdout.splitlines()]


def test_a_session_that_is_over_is_not_found(running: Running, tmp_path: Path) -> None:
    ended = running.speak(wav(tmp_path / "hello.wav", tone(0.5)), "--json")
    shown = lingua("sessions", "show", json.loads(ended.stdout)["session_id"], **running.addresses)
    assert shown.returncode == 4
    assert "lingua sessions list" in shown.stderr
