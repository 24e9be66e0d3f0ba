"""A watcher of the fleet, as a console is one."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from lingua_scheduler.v1 import pool_pb2

# Long enough for busy machines.
_WITHIN_S = 20.0


class FleetWatcher:
    """Reads a WatchFleet stream, and keeps what a console would know.

    Attributes:
        nodes: by id, as of the last complete message.
        sets: the capability sets by id.
        told: for each message that was not empty, the ids of its nodes and those that were removed.
        empty: number of messages that said that nothing has changed.
        responses: all messages.
    """

    def __init__(self, call: Any) -> None:
        self.call = call
        self.nodes: dict[str, pool_pb2.Node] = {}
        self.sets: dict[str, pool_pb2.CapabilitySet] = {}
        self.told: list[tuple[list[str], list[str]]] = []
        self.empty = 0
        self.responses: list[pool_pb2.WatchFleetResponse] = []
        self._read = asyncio.Condition()

    async def run(self) -> None:
        """Reads until the stream ends; raises its status."""
        async for response in self.call:
            async with self._read:
                self._take(response)
                self._read.notify_all()

    def _take(self, response: pool_pb2.WatchFleetResponse) -> None:
        self.responses.append(response)
        for each in response.capability_sets:
            assert each.id not in self.sets, f"{each.id} was sent twice"
            self.sets[each.id] = each
        for node in response.nodes:
            assert node.capability_set in self.sets, f"{node.node_id} has an unknown set"
            self.nodes[node.node_id] = node
        for node_id in response.removed_node_ids:
            del self.nodes[node_id]
        if response.nodes or response.removed_node_ids:
            told = sorted(node.node_id for node in response.nodes)
            self.told.append((told, list(response.removed_node_ids)))
        else:
            self.empty += 1

    async def until(self, holds: Callable[["FleetWatcher"], bool]) -> None:
        """Returns when a condition holds after a message."""
        async with asyncio.timeout(_WITHIN_S), self._read:
            await self._read.wait_for(lambda: holds(self))

    async def sees(self, node_id: str, **fields: object) -> pool_pb2.Node:
        """Returns a node once it has these values."""

        def holds(_: object) -> bool:
            node = self.nodes.get(node_id)
            return node is not None and all(
                getattr(node, name) == value for name, value in fields.items()
            )

        await self.until(holds)
        return self.nodes[node_id]

    async def says_that_nothing_changed(self) -> None:
        """Returns when a message without nodes has come."""
        empty = self.empty
        await self.until(lambda _: self.empty > empty)


@contextlib.asynccontextmanager
async def watching(stub: Any) -> AsyncIterator[FleetWatcher]:
    """A stream that is read."""
    watcher = FleetWatcher(stub.WatchFleet())
    task = asyncio.create_task(watcher.run())
    try:
        await watcher.until(lambda _: any(each.is_complete for each in watcher.responses))
        yield watcher
    finally:
        watcher.call.cancel()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
