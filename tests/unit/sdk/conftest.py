"""Protocols that are connected, and a dispatcher for nodes."""

from collections.abc import AsyncIterator

import pytest

from tests.unit.sdk import node_driver, node_peer, session_driver


@pytest.fixture
def node() -> node_driver.Driver:
    """Returns a node that a dispatcher has welcomed."""
    driver = node_driver.Driver()
    driver.connect()
    return driver


@pytest.fixture
def open_one() -> session_driver.Driver:
    """Returns a session that a gateway has opened."""
    driver = session_driver.Driver()
    assert driver.connect() == ["open"]
    return driver


@pytest.fixture
async def dispatcher() -> AsyncIterator[node_peer.Dispatcher]:
    """Runs a dispatcher that answers as the test tells it."""
    async with node_peer.running_dispatcher() as made:
        yield made
