"""`lingua up --instances 2`: processes die in turn, and nobody who talks loses a word."""

import asyncio
import os
import random
import signal
import socket
import time
from collections.abc import Iterator, Sequence
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


# Whose processes are killed, with a process for each service and with one for all.
SPLIT = ("pool-1", "dispatcher-1", "gateway-1")
ALL_IN_ONE = ("gateway-1", "gateway-2")


@pytest.fixture
def up(request: pytest.FixtureRequest) -> Iterator[Up]:
    """With the settings of the worlds, on free ports."""
    given = {f"LINGUA_{name.upper()}": str(value) for name, value in settings().items()}
    options = ("--split",) if request.param is SPLIT else ()
    with Up("--instances", "2", *options, **given) as made:
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
@pytest.mark.parametrize(
    ("up", "victims"),
    [(SPLIT, SPLIT), pytest.param(ALL_IN_ONE, ALL_IN_ONE, marks=pytest.mark.long)],
    indirect=["up"],
    ids=["split", "all in one"],
)
async def test_a_process_of_lingua_up_that_dies_is_back_and_nobody_loses_a_word(
    up: Up, victims: Sequence[str]
) -> None:
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
            for name in victims:
                await all_heard(talkers, tasks, history.healed)
                victim = services[name]
                kind = f"a {victim['service']}" if victims is SPLIT else "an all-in-one process"
                struck = Struck(f"kill -9 of {kind}", name, time.monotonic(), 0.0)
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
