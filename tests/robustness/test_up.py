"""`lingua up --instances 2`: a process of each kind dies, and the people who talk lose nothing."""

import asyncio
import os
import random
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.robustness.history import History, Struck
from tests.robustness.processes import WorldNode, settings
from tests.robustness.rounds import all_heard, ended
from tests.robustness.traffic.client import Talker
from tests.robustness.validate import validate
from tests.support.commands import Up

PEOPLE = 4
BACK_S = 30.0


@pytest.fixture
def up() -> Iterator[Up]:
    """With the settings of the worlds, on free ports."""
    given = {f"LINGUA_{name.upper()}": str(value) for name, value in settings().items()}
    with Up("--instances", "2", **given) as made:
        yield made


async def is_back(up: Up, address: str) -> None:
    """Returns when something listens there; fails if nothing ever does."""
    host, _, port = address.rpartition(":")
    deadline = time.monotonic() + BACK_S
    while True:
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
        except OSError:
            assert time.monotonic() < deadline, f"nothing listens at {address} again"
            assert up.process.poll() is None, f"lingua up has ended:\n{up.log()}"
            await asyncio.sleep(0.05)
        else:
            return


@pytest.mark.timeout(150)
async def test_a_service_of_lingua_up_that_dies_is_back_and_nobody_loses_a_word(up: Up) -> None:
    services = {each["name"]: each for each in up.ready()["services"]}
    where = {
        kind: ",".join(services[f"{kind}-{n}"]["address"] for n in (1, 2))
        for kind in ("dispatcher", "gateway")
    }
    history = History(name="kills under lingua up", seed=7)
    since = time.monotonic()
    with ExitStack() as stack:
        nodes = [
            WorldNode(f"node-{at}", slots=2, dispatchers=where["dispatcher"]) for at in range(2)
        ]
        for node in nodes:
            stack.callback(node.stop)
            node.start()
        for node in nodes:
            node.wait_ready()
        talkers = [
            Talker(f"client-{at}", where["gateway"], random.Random(at)) for at in range(PEOPLE)
        ]
        tasks = [asyncio.create_task(each.talk()) for each in talkers]
        try:
            for kind in ("pool", "dispatcher", "gateway"):
                await all_heard(talkers, tasks, history.healed)
                victim = services[f"{kind}-1"]
                struck = Struck(f"kill -9 of a {kind}", victim["name"], time.monotonic(), 0.0)
                os.kill(victim["pid"], signal.SIGKILL)
                await is_back(up, victim["address"])
                struck.healed = time.monotonic()
                history.struck.append(struck)
            await all_heard(talkers, tasks, history.healed)
        finally:
            for each in talkers:
                each.stop()
            await ended(talkers, tasks)
        history.clients = [each.history for each in talkers]
        history.nodes = [node.history(since) for node in nodes]
    assert up.process.poll() is None, up.log()
    violations = validate(history)
    assert not violations, "\n".join(map(str, violations))
