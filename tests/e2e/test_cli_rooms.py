"""`lingua rooms`, `listen` and `speak --room` with `lingua up`, all real processes."""

import contextlib
import json
import signal
import subprocess
import wave
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import (
    LINGUA,
    WITHIN_S,
    LinguaProcess,
    Start,
    Up,
    becomes,
    environment,
    lingua,
)

RATE = 16000


@pytest.fixture(scope="module")
def at() -> Iterator[dict[str, str]]:
    """Runs a scheduler with a sample node for en, es and fr; returns its addresses."""
    with Up(LINGUA_PAUSE_MS="600") as up, contextlib.ExitStack() as stack:
        found = {each["service"]: each["address"] for each in up.ready()["services"]}
        addresses = {f"LINGUA_{name.upper()}_ADDRESS": where for name, where in found.items()}
        node = ("sample-node", "--id", "n1", "--langs", "en,es,fr")
        stack.enter_context(LinguaProcess(*node, **addresses))
        assert becomes(lambda: "n1" in lingua("nodes", "list", **addresses).stdout)
        yield addresses


@pytest.fixture
def hello(tmp_path: Path) -> Path:
    """Half a second of a voice."""
    path = tmp_path / "hello.wav"
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(array("h", ([3000] * 40 + [-3000] * 40) * (RATE // 160)).tobytes())
    return path


@pytest.fixture
def room(at: dict[str, str]) -> Iterator[dict[str, Any]]:
    """Creates a room; returns what the command said of it."""
    made = run(at, "rooms", "create", "--name", "All hands", "--json")
    yield json.loads(made)
    lingua("rooms", "close", room_id(json.loads(made)), **at)


def room_id(room: dict[str, Any]) -> str:
    return str(room["room"]["room_id"])


def run(at: dict[str, str], *args: str, **variables: str) -> str:
    """A command that succeeds; returns what it prints."""
    ended = lingua(*args, **at, **variables)
    assert ended.returncode == 0, f"{args}\n{ended.stdout}{ended.stderr}"
    return ended.stdout


class Listening:
    """A `lingua listen` that goes on; what it prints goes to a file."""

    def __init__(self, at: dict[str, str], folder: Path, token: str, *args: str) -> None:
        self._out, self._err = folder / "listen.out", folder / "listen.err"
        with self._out.open("w") as out, self._err.open("w") as err:
            self.process = subprocess.Popen(
                [*LINGUA, "listen", *args],
                env=environment(**at, LINGUA_ROOM_TOKEN=token),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                text=True,
            )

    def __enter__(self) -> "Listening":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    @property
    def lines(self) -> list[str]:
        return self._out.read_text().splitlines()

    def wait_for(self, text: str) -> None:
        said = becomes(lambda: text in self._out.read_text() or self.process.poll() is not None)
        assert said, self._out.read_text() + self._err.read_text()
        assert text in self._out.read_text(), self._err.read_text()

    def interrupt(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(WITHIN_S)


def test_what_is_spoken_to_a_room_is_heard_in_another_language(
    at: dict[str, str], room: dict[str, Any], hello: Path, tmp_path: Path
) -> None:
    where = ("--room", room_id(room))
    with Listening(
        at, tmp_path, room["listener_token"], *where, "--language", "es", "--name", "Ben"
    ) as listening:
        listening.wait_for(f"Listening to room {room_id(room)} (All hands) in es")
        said = run(
            at,
            *("speak", str(hello), *where, "--from", "en", "--name", "Ana"),
            LINGUA_ROOM_TOKEN=room["speaker_token"],
        )
        assert "delivered  en->es" in said
        assert "1 utterance: 1 delivered." in said
        listening.wait_for("#0 Ana: ")
        page = run(at, "rooms", "show", room_id(room))
        assert "Ben" in page
        assert listening.interrupt() == 0
        assert listening.lines[-1] == "Left the room: 1 utterance."
    shown = json.loads(run(at, "rooms", "show", room_id(room), "--json"))
    assert becomes(
        lambda: json.loads(run(at, "rooms", "show", room_id(room), "--json"))["members"] == []
    ), shown


def test_json_is_a_line_for_each_utterance_and_speech_goes_to_files(
    at: dict[str, str], room: dict[str, Any], hello: Path, tmp_path: Path
) -> None:
    where, out = ("--room", room_id(room)), tmp_path / "out"
    options = (*where, "--language", "fr", "--json", "--speech-dir", str(out))
    with Listening(at, tmp_path, room["listener_token"], *options) as listening:
        assert becomes(lambda: '"fr"' in run(at, "rooms", "show", room_id(room), "--json"))
        told = json.loads(
            run(
                at,
                *("speak", str(hello), str(hello), *where, "--from", "en", "--json"),
                LINGUA_ROOM_TOKEN=room["host_token"],
            )
        )
        assert [each["delivered"] for each in told["results"]] == [["fr"], ["fr"]]
        assert becomes(lambda: len(listening.lines) == 2), listening.lines
        # The room is closed while somebody listens.
        run(at, "rooms", "close", room_id(room), LINGUA_HOST_TOKEN=room["host_token"])
        assert listening.process.wait(WITHIN_S) == 0
        heard = [json.loads(line) for line in listening.lines]
    assert [each["room_index"] for each in heard] == [0, 1]
    assert {each["event"] for each in heard} == {"said"}
    assert {each["language"] for each in heard} == {"fr"}
    for each in heard:
        with wave.open(each["speech_file"], "rb") as file:
            assert file.getframerate() == RATE
            assert file.getnframes() > 0


def test_original_audio_is_the_speakers_own(
    at: dict[str, str], room: dict[str, Any], hello: Path, tmp_path: Path
) -> None:
    where, out = ("--room", room_id(room)), tmp_path / "out"
    options = (*where, "--language", "en", "--speech-dir", str(out), "--original")
    with Listening(at, tmp_path, room["listener_token"], *options) as listening:
        listening.wait_for("Listening to room")
        run(
            at,
            *("speak", str(hello), *where, "--from", "en"),
            LINGUA_ROOM_TOKEN=room["speaker_token"],
        )
        listening.wait_for("speech in ")
    with wave.open(str(hello), "rb") as file:
        said = file.readframes(file.getnframes())
    with wave.open(str(out / "utterance-0000.wav"), "rb") as file:
        assert file.readframes(file.getnframes()).startswith(said)


def test_who_comes_late_reads_what_was_said_before(
    at: dict[str, str], room: dict[str, Any], hello: Path, tmp_path: Path
) -> None:
    where = ("--room", room_id(room), "--language", "es")
    with Listening(at, tmp_path, room["listener_token"], *where) as listening:
        listening.wait_for("Listening to room")
        run(
            at,
            *("speak", str(hello), "--room", room_id(room), "--from", "en"),
            LINGUA_ROOM_TOKEN=room["speaker_token"],
        )
        listening.wait_for("#0: ")
        late = run(
            at,
            *("listen", *where, "--seconds", "2"),
            LINGUA_ROOM_TOKEN=room["listener_token"],
        )
    assert "#0 (earlier): " in late


def test_the_commands_that_create_prints_work(at: dict[str, str]) -> None:
    printed = run(at, "rooms", "create", "--language", "en", "--language", "es")
    tokens = [
        line.partition("=")[2]
        for line in printed.splitlines()
        if line.startswith("  export LINGUA_ROOM_TOKEN=")
    ]
    (listens,) = [line.split() for line in printed.splitlines() if "lingua listen" in line]
    heard = run(at, *listens[1:], "--seconds", "0.5", LINGUA_ROOM_TOKEN=tokens[0])
    assert "in es" in heard
    made = listens[listens.index("--room") + 1]
    assert made in run(at, "rooms", "list")
    (host,) = [line.strip() for line in printed.splitlines() if line.startswith("  room.")]
    token = run(at, "rooms", "token", made, "--role", "speaker", LINGUA_HOST_TOKEN=host).strip()
    assert token.startswith("room.")
    assert run(at, "rooms", "close", made, "--host-token", host) == f"Closed room {made}\n"


@pytest.mark.parametrize("kind", ["wrong", "closed", "unknown", "listens", "away"])
def test_who_is_not_let_in_is_told_why(
    at: dict[str, str], room: dict[str, Any], hello: Path, kind: str
) -> None:
    token, where, code = room["listener_token"], room_id(room), 2
    command = ["listen", "--language", "es"]
    if kind == "wrong":
        token, hint = token[:-3] + "xxx", "lingua rooms token"
    elif kind == "closed":
        run(at, "rooms", "close", where, LINGUA_HOST_TOKEN=room["host_token"])
        hint, code = "lingua rooms create", 1
    elif kind == "unknown":
        # Strangers do not learn whether a room exists.
        where, hint = "nowhere", "lingua rooms token"
    elif kind == "listens":
        command, hint = ["speak", str(hello), "--from", "en"], "--role speaker"
    else:
        at = {**at, "LINGUA_GATEWAY_ADDRESS": "127.0.0.1:1"}
        hint, code = "lingua up", 3
    ended = lingua(*command, "--room", where, **at, LINGUA_ROOM_TOKEN=token)
    assert ended.returncode == code, ended.stderr
    assert hint in ended.stderr
    assert token not in ended.stderr


def test_with_auth_on_members_need_only_their_token_of_the_room(
    up: Start, hello: Path, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    assert lingua("token", "secret", str(secret)).returncode == 0
    signs = {"LINGUA_AUTH_SECRET_FILE": str(secret)}
    services = up(LINGUA_AUTH="on", **signs).ready()["services"]
    at = {f"LINGUA_{each['service'].upper()}_ADDRESS": each["address"] for each in services}
    assert lingua("rooms", "create", **at).returncode == 2
    room = json.loads(run(at, "rooms", "create", "--json", **signs))
    where = ("--room", room_id(room))
    # Nobody has to translate English to English, so no node is needed.
    options = (*where, "--language", "en", "--speech-dir", str(tmp_path / "out"), "--original")
    with Listening(at, tmp_path, room["listener_token"], *options) as listening:
        listening.wait_for("Listening to room")
        speaks = {"LINGUA_ROOM_TOKEN": room["speaker_token"]}
        said = run(at, "speak", str(hello), *where, "--from", "en", **speaks)
        assert "delivered  en->en" in said
        listening.wait_for("speech in ")
        shown = json.loads(run(at, "rooms", "show", room_id(room), "--json", **speaks))
        assert [each["role"] for each in shown["members"]] == ["LISTENER"]
        host = {"LINGUA_HOST_TOKEN": room["host_token"]}
        assert run(at, "rooms", "token", room_id(room), "--role", "listener", **host)
        run(at, "rooms", "close", room_id(room), **host)
        assert listening.process.wait(WITHIN_S) == 0
