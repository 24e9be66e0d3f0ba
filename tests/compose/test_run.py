"""compose.yaml runs and keeps its state.

Skipped unless COMPOSE names a command, because it pulls and builds images:
COMPOSE='docker compose' make test TESTS=tests/compose
"""

import json
import os
import re
import shlex
import subprocess
import time
import urllib.request
import uuid
import wave
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.compose.compose_file import FILE, ROOT
from tests.support.commands import LINGUA
from tests.support.process import environment

COMMAND = shlex.split(os.environ.get("COMPOSE", ""))
UP_S = 900
READY_S = 120
PORTS = re.findall(r"\$\{(\w+_PORT)-", FILE.read_text())

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(3 * UP_S),
    pytest.mark.skipif(
        not COMMAND, reason="COMPOSE='docker compose' or COMPOSE=podman-compose runs compose.yaml"
    ),
]


class Project:
    """The containers of compose.yaml, with a name and ports of their own."""

    def __init__(self) -> None:
        self._command = [*COMMAND, "-p", f"lingua-test-{uuid.uuid4().hex[:8]}", "-f", str(FILE)]

    def run(self, *args: str) -> str:
        """What a command of Compose prints."""
        ran = subprocess.run(
            [*self._command, *args],
            env={**os.environ, **dict.fromkeys(PORTS, "")},
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=UP_S,
        )
        assert ran.returncode == 0, f"{args}: {ran.stdout}{ran.stderr}"
        return ran.stdout

    def lingua(self, *args: str) -> str:
        """What a command of ours prints in the container of the gateway."""
        return self.run("exec", "-T", "gateway", "lingua", *args)

    def up(self) -> None:
        """Starts everything; returns when all services serve."""
        self.run("up", "--detach")
        eventually(lambda: self.lingua("health"))

    def port(self, service: str, inside: int) -> int:
        """The port of this machine that leads there."""
        return int(self.run("port", service, str(inside)).strip().rpartition(":")[2])


def eventually(call: Callable[[], Any]) -> None:
    """Returns when a call raises nothing."""
    deadline = time.monotonic() + READY_S
    while True:
        try:
            call()
        except (AssertionError, OSError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)
        else:
            return


@pytest.fixture
def project() -> Iterator[Project]:
    """One that runs; its data are deleted in the end."""
    made = Project()
    try:
        made.up()
        yield made
    finally:
        made.run("down", "--volumes")


def test_people_talk_prometheus_sees_it_and_a_room_outlives_the_containers(
    project: Project, tmp_path: Path
) -> None:
    talk = tmp_path / "talk.wav"
    with wave.open(str(talk), "wb") as file:
        file.setparams((1, 2, 16_000, 0, "NONE", ""))
        file.writeframes(array("h", [9000, -9000] * 8000).tobytes())
    speak = [*LINGUA, "speak", str(talk), "--from", "en", "--to", "es", "--json"]
    gateway = f"127.0.0.1:{project.port('gateway', 7730)}"

    def said() -> None:
        command = [*speak, "--gateway", gateway, "--timeout", "30"]
        ran = subprocess.run(
            command, env=environment(), capture_output=True, text=True, timeout=READY_S
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr

    eventually(said)

    targets = f"http://127.0.0.1:{project.port('prometheus', 9090)}/api/v1/targets"

    def scraped() -> None:
        with urllib.request.urlopen(targets, timeout=10) as response:
            found = json.load(response)["data"]["activeTargets"]
        health = {each["labels"]["job"]: each["health"] for each in found}
        jobs = ("pool", "dispatcher", "gateway", "console")
        assert health == {f"lingua-{each}": "up" for each in jobs}

    eventually(scraped)

    room = json.loads(project.lingua("rooms", "create", "--json"))["room"]["room_id"]
    project.run("down")
    project.up()
    assert room in project.lingua("rooms", "show", room)
