"""Tables and pages at the widths of terminals: no line is too wide, no id is cut."""

import click
import pytest
from rich.cells import cell_len

from lingua_scheduler.cli.commands.config import _table as config_table
from lingua_scheduler.cli.views import output, table
from lingua_scheduler.cli.views.cell import cell_list
from lingua_scheduler.cli.views.instance import instance_list
from lingua_scheduler.cli.views.job import job_list, job_page
from lingua_scheduler.cli.views.node import node_list, node_page
from lingua_scheduler.cli.views.room import room_list
from lingua_scheduler.cli.views.session import session_list, session_page
from lingua_scheduler.cli.views.states import colour_of, state
from lingua_scheduler.cli.views.table import Column
from lingua_scheduler.services.runtime.settings.settings import load_settings
from lingua_scheduler.v1 import (
    common_pb2,
    dispatcher_pb2,
    instances_pb2,
    pool_pb2,
    rooms_pb2,
    session_pb2,
)
from tests.unit.cli.test_jobs import T0, attempt, job

JOB_ID = "f09c274f35bb487ef11ec3c377187000"
SESSION_ID = "9a81748bfd5ce3b4818047ad"
OWNER = "gpu-host-17.example-62e6-dispatcher"

NODES = [
    pool_pb2.Node(
        node_id=name, health=health, max_concurrent_jobs=4, pools=50, owner_instance=OWNER, load=0.9
    )
    for name, health in (
        ("madrid-l4-0", common_pb2.NODE_HEALTH_READY),
        ("rome-t4-11", common_pb2.NODE_HEALTH_DRAINING),
        ("lagos", common_pb2.NODE_HEALTH_OFFLINE),
    )
]
JOB = job(
    JOB_ID,
    session_id=SESSION_ID,
    attempts=[
        attempt(1, "rome-t4-11", outcome="failed", detail="SIMULATED: this was chosen to fail"),
        attempt(2, "madrid-l4-0", at=1000, ack=1010, end=2000),
    ],
)
SESSION = session_pb2.Session(
    session_id=SESSION_ID, connected=True, tenant="acme", opened_ms=T0, gateway_instance=OWNER
)
ROOM = rooms_pb2.Room(
    room_id="r-0123456789abcdef",
    options=rooms_pb2.RoomOptions(name="城市规划公开会议，欢迎所有居民参加并提出问题"),
    languages=[rooms_pb2.RoomLanguage(language=each) for each in ("en", "es", "zh-hant", "fr")],
)
INSTANCES = instances_pb2.ListInstancesResponse(
    instances=[
        instances_pb2.Instance(
            instance_id=OWNER,
            service="dispatcher",
            version="0.2.0",
            health=instances_pb2.INSTANCE_HEALTH_SERVING,
            address="10.0.0.17:7720",
        )
    ]
)
CELLS = [
    pool_pb2.Cell(
        number=0, state=pool_pb2.CELL_STATE_READY, is_up=True, address="redis://10.0.0.9:6379/0"
    ),
    pool_pb2.Cell(
        number=1,
        state=pool_pb2.CELL_STATE_DRAINING,
        address="redis://10.0.0.8:6379/0",
        down_reason="connection refused by the host",
    ),
]

# What each view shows, and the words that have to be there, whole, at every width.
VIEWS = {
    "nodes": (lambda: node_list(NODES), ["madrid-l4-0", "ready", "draining", "offline"]),
    "node": (
        lambda: node_page(pool_pb2.GetNodeResponse(node=NODES[1])),
        ["rome-t4-11", "draining", OWNER],
    ),
    "jobs": (lambda: job_list([JOB]), [JOB_ID, "done", "zh:en"]),
    "job": (
        lambda: job_page(dispatcher_pb2.GetJobResponse(job=JOB)),
        [JOB_ID, SESSION_ID, "done", "attempt 2", "SIMULATED:"],
    ),
    "sessions": (lambda: session_list([SESSION]), [SESSION_ID, "connected"]),
    "session": (lambda: session_page(SESSION), [SESSION_ID, "connected", OWNER]),
    "rooms": (lambda: room_list([ROOM]), ["r-0123456789abcdef"]),
    "instances": (lambda: instance_list(INSTANCES), [OWNER, "serving"]),
    "cells": (
        lambda: cell_list(CELLS),
        ["ready", "draining", "away", "redis://10.0.0.8:6379/0"],
    ),
    "config": (lambda: config_table(load_settings({})), ["LINGUA_POOL_ADDRESS", "127.0.0.1:7710"]),
}


@pytest.fixture(params=[60, 80, 120])
def width(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """A terminal of this width."""
    monkeypatch.setenv("COLUMNS", str(request.param))
    for module in (output, table):
        monkeypatch.setattr(module, "is_terminal", lambda: True)
    monkeypatch.setattr("lingua_scheduler.cli.views.job_waterfall.is_terminal", lambda: True)
    return int(request.param)


@pytest.mark.parametrize("view", VIEWS)
def test_on_a_terminal_no_line_is_too_wide_ids_are_whole_and_states_are_named(
    view: str, width: int
) -> None:
    shown, words = VIEWS[view]
    text = click.unstyle(shown())
    lines = text.splitlines()
    assert max(map(cell_len, lines)) <= width, text
    for word in words:
        assert any(word in line for line in lines), (word, text)


@pytest.mark.parametrize("view", VIEWS)
def test_in_a_pipe_every_row_is_one_line_with_all_columns(
    view: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    shown, words = VIEWS[view]
    text = click.unstyle(shown())
    assert "Left out" not in text
    for word in words:
        assert word in text
    if view == "nodes":
        assert len(text.splitlines()) == 1 + len(NODES)
        assert text.splitlines()[2].split()[-1] == OWNER


@pytest.mark.usefixtures("width")
def test_bars_stay_bars_at_every_width() -> None:
    text = click.unstyle(job_page(dispatcher_pb2.GetJobResponse(job=JOB)))
    node = next(line for line in text.splitlines() if line.startswith("  node "))
    assert "==" in node
    assert node.count("|") == 2


def test_columns_give_way_in_their_order_and_are_named_below(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(table, "is_terminal", lambda: True)
    columns = (Column("ID"), Column("FIRST", 1), Column("SECOND", 2))
    rows = [("i" * 20, "f" * 20, "s" * 20)]
    monkeypatch.setenv("COLUMNS", "64")
    assert len(table.table(columns, rows).splitlines()) == 2
    monkeypatch.setenv("COLUMNS", "63")
    head, row, _, *note = click.unstyle(table.table(columns, rows)).splitlines()
    assert (head.split(), row.split()) == (["ID", "SECOND"], ["i" * 20, "s" * 20])
    assert " ".join(note).startswith("Left out for lack of width: FIRST.")


def test_rows_become_blocks_where_not_even_the_columns_fit_that_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(table, "is_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "50")
    shown = table.table((Column("ID"), Column("SESSION")), [("a" * 32, "b" * 32), ("c", "d")])
    assert click.unstyle(shown) == (
        f"ID       {'a' * 32}\nSESSION  {'b' * 32}\n\nID       c\nSESSION  d"
    )


def test_a_word_that_is_wider_than_the_terminal_is_not_broken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(table, "is_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    shown = table.fact_page(("talk", ""), [("page", f"open {'u' * 60} in a browser")])
    assert "u" * 60 in shown


def test_folded_text_keeps_its_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "is_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "30")
    shown = table.fact_page(("job", "j1"), [("how", click.style("one two " * 6, fg="red"))])
    *_, before, last = shown.splitlines()
    assert "\x1b[31m" in before
    assert "\x1b[31m" in last


def test_a_state_has_the_same_colour_in_any_case_and_other_words_have_none() -> None:
    assert colour_of("READY") == colour_of("ready") == colour_of("serving") == "green"
    assert (colour_of("draining"), colour_of("offline")) == ("yellow", "red")
    assert state("whatever") == click.style("whatever")
