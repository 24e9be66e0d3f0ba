"""`lingua cells`: requests to the pool service, and the output for its answers."""

import json
from typing import Any

import pytest

from lingua_scheduler.services.runtime.errors import InvalidMessageError
from lingua_scheduler.v1 import pool_pb2

from .test_clients import Answer, run


def cell(number: int = 0, **fields: Any) -> pool_pb2.Cell:
    values: dict[str, Any] = {
        "state": pool_pb2.CELL_STATE_READY,
        "address": "redis://a:6379",
        "is_up": True,
        "nodes": 2,
        "slots": 8,
        "used_slots": 3,
        "sessions": 12,
        "rooms": 1,
    }
    return pool_pb2.Cell(number=number, **{**values, **fields})


def listed(*cells: pool_pb2.Cell) -> Answer:
    return Answer("ListCells", pool_pb2.ListCellsResponse(cells=cells))


def changed(one: pool_pb2.Cell) -> Answer:
    return Answer("SetCellState", pool_pb2.SetCellStateResponse(cell=one))


@pytest.mark.parametrize("command", ["cells", "cells list"])
def test_list_shows_the_state_and_the_contents_of_each_cell(command: str) -> None:
    drained = cell(1, state=pool_pb2.CELL_STATE_DRAINING, nodes=0, slots=0, used_slots=0, rooms=0)
    result, requests = run(command, listed(cell(), drained))
    assert result.exit_code == 0, result.output
    assert requests == [pool_pb2.ListCellsRequest()]
    header, first, second = (line.split() for line in result.stdout.splitlines())
    assert header == ["CELL", "STATE", "NODES", "SLOTS", "SESSIONS", "ROOMS", "REDIS"]
    assert first == ["0", "ready", "2", "3/8", "12", "1", "redis://a:6379"]
    assert second == ["1", "draining", "0", "0/0", "12", "0", "redis://a:6379"]


def test_list_says_which_cell_is_away_and_why() -> None:
    away = cell(1, is_up=False, down_reason="Connection refused", nodes=0, slots=0, sessions=0)
    result, _ = run("cells", listed(cell(), away))
    line = result.stdout.splitlines()[2]
    assert line.split()[:6] == ["1", "ready", "?", "?", "?", "?"]
    assert line.endswith("redis://a:6379 away: Connection refused")


def test_list_as_json() -> None:
    for command in ("cells --json", "--json cells", "cells list --json"):
        result, _ = run(command, listed(cell(state=pool_pb2.CELL_STATE_NEW)))
        (shown,) = json.loads(result.stdout)["cells"]
        assert (shown["number"], shown["state"], shown["sessions"]) == (0, "NEW", 12)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "and has 12 sessions, 1 room, 2 nodes"),
        ({"sessions": 0, "rooms": 0, "nodes": 1}, "and has 1 node"),
        ({"sessions": 0, "rooms": 0, "nodes": 0}, "and has nothing"),
    ],
)
def test_drain_says_what_the_cell_still_has(fields: dict[str, int], words: str) -> None:
    drained = cell(3, state=pool_pb2.CELL_STATE_DRAINING, **fields)
    result, (request,) = run("cells drain 3", changed(drained))
    assert (request.number, request.state) == (3, pool_pb2.CELL_STATE_DRAINING)
    assert result.stdout == (
        f"cell 3 is drained: it gets no new sessions, rooms and nodes, {words}\n"
    )


def test_ready_lets_a_cell_take_what_is_new() -> None:
    result, (request,) = run("cells ready 2", changed(cell(2)))
    assert (request.number, request.state) == (2, pool_pb2.CELL_STATE_READY)
    assert result.stdout == "cell 2 is ready: it gets sessions, rooms and nodes\n"
    result, _ = run("cells ready 2 --json", changed(cell(2)))
    assert json.loads(result.stdout)["cell"]["state"] == "READY"


def test_a_refusal_of_the_service_is_told() -> None:
    problem = "state: no other cell than 0 is ready and up: make another one ready first"
    refused = Answer("SetCellState", error=InvalidMessageError(problem))
    result, _ = run("cells drain 0", refused)
    assert result.exit_code != 0
    assert "no other cell than 0 is ready and up" in result.stderr


@pytest.mark.parametrize("number", ["-1", "1000", "x", ""])
def test_a_number_that_is_none_is_refused(number: str) -> None:
    result, requests = run(["cells", "drain", number])
    assert (result.exit_code, requests) == (2, [])
