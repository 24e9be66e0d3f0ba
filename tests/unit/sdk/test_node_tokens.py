"""Tokens of nodes."""

import asyncio
import logging
from pathlib import Path

import grpc
import pytest

from lingua_scheduler.sdk import (
    NodeRefusedError,
)
from lingua_scheduler.sdk._transport import tokens
from tests.conftest import Eventually
from tests.unit.sdk.node_peer import Dispatcher, counting, node_with, serve

UNAUTHENTICATED = grpc.StatusCode.UNAUTHENTICATED
DENIED = grpc.StatusCode.PERMISSION_DENIED
LOGGER = "lingua_scheduler.sdk"


async def test_a_node_whose_token_expires_goes_on_with_the_next(dispatcher: Dispatcher) -> None:
    dispatcher.next(welcome=True, end=UNAUTHENTICATED)
    dispatcher.next(welcome=True, end=grpc.StatusCode.UNAVAILABLE)
    dispatcher.next(welcome=False, end=UNAUTHENTICATED)
    dispatcher.next(welcome=True, end=UNAUTHENTICATED)
    dispatcher.next(welcome=False, end=UNAUTHENTICATED)
    with pytest.raises(
        NodeRefusedError, match="UNAUTHENTICATED: said the dispatcher; the previous token"
    ):
        await serve(node_with(counting()), dispatcher)
    assert dispatcher.tokens == [f"Bearer token-{number}" for number in range(1, 6)]


@pytest.mark.parametrize(
    ("token", "code"),
    [("fixed", UNAUTHENTICATED), (lambda: "always", UNAUTHENTICATED), (counting(), DENIED)],
)
async def test_a_node_that_no_other_token_would_help_ends(
    dispatcher: Dispatcher, token: tokens.Token, code: grpc.StatusCode
) -> None:
    dispatcher.next(welcome=False, end=code)
    with pytest.raises(NodeRefusedError, match=f"{code.name}: said the dispatcher"):
        await serve(node_with(token), dispatcher)
    assert len(dispatcher.tokens) == 1


async def test_a_node_waits_for_a_token_file_and_says_what_is_missing(
    dispatcher: Dispatcher,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    eventually: Eventually,
) -> None:
    file = tmp_path / "token"
    node = node_with(file)
    serving = asyncio.create_task(serve(node, dispatcher))
    with caplog.at_level(logging.WARNING, LOGGER):
        await eventually(lambda: "no token: cannot read" in caplog.text)
        file.write_text("there")
        dispatcher.next(welcome=True, end=None)
        await eventually(lambda: node.connected)
    assert dispatcher.tokens == ["Bearer there"]
    await node.stop()
    await serving
