"""`lingua top`: what it draws, and what it says if it cannot."""

import json
import socket
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from lingua_scheduler.cli.app import app
from lingua_scheduler.cli.views.overview import WIDTH, overview_view, sparkline

NOW = 1_700_000_000_000


def overview(**changes: Any) -> dict[str, Any]:
    """An overview with long numbers and names everywhere."""
    names = ("jobs_per_s", "queue", "p50_ms", "p99_ms", "retries_per_s", "missing_per_s")
    return {
        "totals": {
            "nodes": {
                "ready": 49_000,
                "degraded": 100,
                "draining": 200,
                "offline": 300,
                "ejected": 400,
            },
            "slots": 400_000,
            "free": 123_456,
            "sessions": 50_000,
            "jobs": 20_000,
            "queue": 7,
        },
        "rates": {
            "window_s": 60,
            "jobs_per_s": 12_345.67,
            "retries_per_s": 0.25,
            "failed_per_s": 0,
            "missing_per_s": 1.5,
            "p50_ms": 480,
            "p99_ms": 2350,
        },
        "series": {name: list(range(180)) for name in (*names, "sessions", "free", "slots")},
        "instances": {
            "serving": 30,
            "draining": 1,
            "down": 1,
            "down_list": [{"id": "d" * 128, "service": "dispatcher", "announced_ms": NOW - 9000}],
        },
        "matrix": {
            "kind": "speech",
            "sources": [],
            "targets": [],
            "cells": {},
            "left_out_nodes": 3,
        },
        "shortages": [{"src": "zh-hant", "tgt": "pt-br", "free": 0, "slots": 100_000}] * 12,
        "problems": {"fleet": {"message": "the pool service " * 20, "since_ms": NOW - 4000}},
        **changes,
    }


def drawn(document: dict[str, Any], *, terminal: bool = False, sparklines: bool = True) -> str:
    console = Console(
        width=WIDTH, force_terminal=terminal, color_system="standard" if terminal else None
    )
    with console.capture() as capture:
        console.print(overview_view(document, now_ms=NOW, sparklines=sparklines))
    return capture.get()


def test_it_fits_into_80_columns_with_the_largest_numbers() -> None:
    lines = drawn(overview()).splitlines()
    assert max(len(line) for line in lines) <= WIDTH
    text = "\n".join(lines)
    for told in (
        "49000 ready",
        "123456 of 400000",
        "12346",
        "480ms",
        "2.35s",
        "zh-hant to pt-br",
        "0 of 100000",
        "1 down",
        "last seen 9s ago",
        "fleet not up to date since 4s ago",
        "3 nodes are not included",
    ):
        assert told in text, told


def test_it_fits_into_a_terminal_of_24_lines_if_all_is_well() -> None:
    well = overview(problems={})
    well["instances"]["down_list"] = []
    assert len(drawn(well).splitlines()) < 24


def test_it_is_plain_in_a_pipe_and_coloured_in_a_terminal() -> None:
    assert "\x1b[" not in drawn(overview())
    assert "\x1b[" in drawn(overview(), terminal=True)


def test_an_empty_scheduler_has_an_overview() -> None:
    empty = overview(shortages=[], problems={})
    empty["series"] = {name: [] for name in empty["series"]}
    empty["rates"].pop("p50_ms")
    empty["rates"].pop("p99_ms")
    text = drawn(empty)
    assert "no speech directions" in text
    assert "up to date" not in text


def test_a_sparkline_grows_to_its_largest_value_and_has_gaps() -> None:
    assert sparkline([0, 5, 10]) == "▁▅█"
    assert sparkline([-1, 0, 0]) == " ▁▁"
    assert sparkline([]) == ""
    assert len(sparkline(list(range(180)))) == 40
    assert "█" not in drawn(overview(), sparklines=False)


@pytest.mark.parametrize("arguments", [[], ["--once"], ["--json"]])
def test_an_unreachable_pool_service_is_the_usual_error(arguments: list[str]) -> None:
    with socket.socket() as taken:
        # Bound and not listening: nobody else can answer there.
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        result = CliRunner().invoke(app, ["top", "--pool", address, *arguments])
    assert result.exit_code == 3
    assert "cannot reach the pool service" in result.stderr
    if "--json" in arguments:
        assert json.loads(result.stderr)["error"]["reason"] == "UNAVAILABLE"
