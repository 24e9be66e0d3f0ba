"""The console as part of `lingua up`."""

import json
import os
import signal
import socket
import urllib.request
from typing import Any

import pytest

from lingua_scheduler.cli.up.local_scheduler import LocalScheduler
from tests.e2e.conftest import Start
from tests.support.commands import becomes, environment

FREE = {
    "LINGUA_CONSOLE_LISTEN": "127.0.0.1:0",
    "LINGUA_CONSOLE_METRICS_LISTEN": "127.0.0.1:0",
}


def fetched(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=10) as response:
        return json.loads(response.read())


def answers(url: str) -> bool:
    try:
        return bool(fetched(f"{url}api/v1/me")["role"] == "operator")
    except OSError:
        return False


@pytest.mark.parametrize("split", [True, False], ids=["split", "all_in_one"])
def test_up_runs_a_console_and_tells_its_address(up: Start, split: bool) -> None:
    told = up(*(["--split"] if split else []), **FREE).ready()
    url = told["console"]["url"]
    assert answers(url)
    with urllib.request.urlopen(f"{url}nodes", timeout=10) as response:
        assert response.headers["Content-Type"].startswith("text/html")


def test_up_runs_no_console_if_its_address_is_empty(up: Start) -> None:
    assert up(LINGUA_CONSOLE_LISTEN="").ready()["console"] is None


def test_a_console_whose_port_is_taken_has_a_free_one(up: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        told = up(**{**FREE, "LINGUA_CONSOLE_LISTEN": address}).ready()
    assert told["notes"] == [f"{address} is in use: console listens on a free port instead"]
    url = told["console"]["url"]
    assert answers(url)
    with urllib.request.urlopen(f"{url}api/v1/instances", timeout=10) as response:
        rows = json.load(response)["rows"].values()
    (own,) = [row["address"] for row in rows if row["service"] == "console"]
    assert url == f"http://{own}/"


def test_a_console_that_dies_is_back_at_the_same_address() -> None:
    logged: list[str] = []
    environ = environment(**FREE)
    with LocalScheduler(
        console=True, environ=environ, on_log=lambda name, line: logged.append(f"{name} {line}")
    ) as scheduler:
        assert scheduler.console is not None
        url = f"http://{scheduler.console.address}/"
        assert answers(url)
        before = scheduler.console.process.pid
        os.kill(before, signal.SIGKILL)

        def is_back() -> bool:
            scheduler.wait(0.05)
            return any("console is back" in line for line in logged)

        assert becomes(is_back), logged
        assert answers(url)
        assert scheduler.console.process.pid != before


def test_everything_else_runs_if_the_console_cannot() -> None:
    logged: list[str] = []
    # Without auth it must not listen there, and the services do not.
    environ = environment(LINGUA_CONSOLE_LISTEN="0.0.0.0:0", LINGUA_CONSOLE_METRICS_LISTEN="")
    with LocalScheduler(
        console=True, environ=environ, on_log=lambda _, line: logged.append(line)
    ) as scheduler:
        assert any("the console does not run" in note for note in scheduler.notes)
        assert any("LINGUA_CONSOLE_LISTEN='0.0.0.0:0'" in line for line in logged)
        scheduler.wait(0.2)
        assert scheduler.address("gateway")


def test_nothing_is_left_of_a_console_that_ended_with_the_scheduler() -> None:
    with LocalScheduler(console=True, environ=environment(**FREE)) as scheduler:
        assert scheduler.console is not None
        pid = scheduler.console.process.pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
