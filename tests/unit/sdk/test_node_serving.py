"""The shell of a node: its timer, and how often it reconnects."""

import asyncio
import random
from collections.abc import Callable

import pytest
import uvloop

from lingua_scheduler.sdk._transport.channels import Channels
from lingua_scheduler.sdk._transport.tokens import TokenSource
from lingua_scheduler.sdk.node.handlers import Kind
from lingua_scheduler.sdk.node.protocol.machine import NodeProtocol
from lingua_scheduler.sdk.node.serving import Serving
from lingua_scheduler.sdk.node.workers import LoopWorkers
from lingua_scheduler.v1.dispatcher_pb2 import Hello
from tests.unit.sdk.node_peer import Dispatcher, node_with, serve


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_deadline_that_is_over_can_be_set_again_on_any_event_loop(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def scenario() -> None:
        protocol = NodeProtocol(hello=Hello(node_id="n", max_concurrent_jobs=1))
        serving = Serving(
            node_id="n",
            protocol=protocol,
            workers=LoopWorkers(lambda job: None, Kind.COROUTINE),
            addresses=["127.0.0.1:1"],
            channels=Channels(),
            token=TokenSource(None),
            load=lambda: (0.0, 0.0),
            drain_seconds=0.0,
            rng=random.Random(1),
        )
        protocol.on_connected(asyncio.get_running_loop().time() - 3600)
        serving.wake()
        serving.wake()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(scenario())


async def test_a_node_that_is_sent_away_again_and_again_waits_longer_each_time(
    dispatcher: Dispatcher,
) -> None:
    dispatcher.sends_away = True
    serving = asyncio.create_task(serve(node_with(None), dispatcher))
    await asyncio.sleep(1.5)
    serving.cancel()
    await asyncio.wait([serving])
    # Without a wait there would be hundreds, even on a slow machine.
    assert 1 <= len(dispatcher.tokens) <= 25
