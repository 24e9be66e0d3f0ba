"""Follows the instances of all services."""

import asyncio
from collections.abc import Sequence

from lingua_scheduler.services.console.services.calls import ServiceCalls
from lingua_scheduler.services.console.services.polling import poll
from lingua_scheduler.services.console.services.problems import Problems
from lingua_scheduler.services.console.store.instances import MAX_INSTANCES, InstanceBoard
from lingua_scheduler.services.runtime.errors import LinguaError
from lingua_scheduler.v1 import instances_pb2

EVERY_S = 2.0
# Settings change only with a restart.
SETTINGS_EVERY_S = 30.0


class InstancePoll:
    """Applies what `ListInstances` returns to the board.

    Settings are large, so they are read only while somebody looks at them.

    Args:
        calls: makes the calls.
        board: is kept up to date.
        problems: get a problem of "instances" while the pool service cannot be asked.
    """

    def __init__(self, *, calls: ServiceCalls, board: InstanceBoard, problems: Problems) -> None:
        self._calls = calls
        self._board = board
        self._problems = problems
        self._settings: Sequence[instances_pb2.Instance] = ()
        self._settings_of: frozenset[tuple[str, int]] = frozenset()
        self._settings_at = -SETTINGS_EVERY_S
        self._settings_not_before = 0.0
        self._reading = asyncio.Lock()

    async def run(self) -> None:
        """Follows the instances until cancelled."""
        await poll("instances", self._ask, every_s=EVERY_S, problems=self._problems)

    async def with_settings(self) -> Sequence[instances_pb2.Instance]:
        """The instances with their settings, not older than 30 s; all that are listed now.

        Those that were read last if the pool service does not answer, which the poller reports.
        """
        async with self._reading:
            now = asyncio.get_running_loop().time()
            processes = frozenset(
                (each.instance_id, each.started_ms) for each in self._board.instances
            )
            is_old = now - self._settings_at >= SETTINGS_EVERY_S
            if now >= self._settings_not_before and (is_old or not processes <= self._settings_of):
                await self._read_settings(processes)
            return self._settings

    async def _read_settings(self, processes: frozenset[tuple[str, int]]) -> None:
        request = instances_pb2.ListInstancesRequest(with_settings=True)
        loop = asyncio.get_running_loop()
        try:
            response = await self._calls.call("pool", "ListInstances", request)
        except LinguaError:
            # Those who wait for the same do not try again, one after the other.
            self._settings_not_before = loop.time() + EVERY_S
            return
        self._board.apply(response)
        self._settings = list(response.instances[:MAX_INSTANCES])
        self._settings_of = processes | {
            (each.instance_id, each.started_ms) for each in self._settings
        }
        self._settings_at = loop.time()

    async def _ask(self) -> bool:
        request = instances_pb2.ListInstancesRequest()
        self._board.apply(await self._calls.call("pool", "ListInstances", request))
        return False
