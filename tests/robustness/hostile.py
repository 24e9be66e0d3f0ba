"""Hostile peers beside honest ones, for the time of a block, and what is watched meanwhile."""

import asyncio
import contextlib
import json
import os
import random
import subprocess
import time
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Self

import grpc
import redis

from lingua_scheduler.v1 import common_pb2, pool_pb2
from tests.robustness.history import HOSTILE_PEERS, Excuses, HostileHistory
from tests.robustness.traffic.hostile_node import NODE_ID
from tests.robustness.traffic.watcher import CONTROL, silences
from tests.robustness.world import World
from tests.support.process import Process
from tests.support.records import read_records

# Only turns that the hostile node itself began, or said it began, may go on elsewhere.
HOSTILE_EXCUSES = Excuses(turns=frozenset({NODE_ID}))
_PROGRAMS = "from tests.robustness.traffic import {0}; {0}.{1}()"
_SAMPLE_S = 0.25
_END_S = 10.0
_DONE_S = 90.0


class _Program(Process):
    """One program of traffic/, and the records that it writes."""

    def __init__(self, module: str, function: str = "main") -> None:
        super().__init__(module)
        self._code = _PROGRAMS.format(module, function)

    @property
    def records(self) -> Path:
        return self.file("records")

    def run(self, **env: str) -> None:
        self.fork(self._code, env={**os.environ, **env})

    async def said(self) -> str:
        """The first line that it prints."""
        said = "ready to say something"
        await asyncio.to_thread(self.wait_for, lambda: self.output().endswith("\n"), said)
        return self.output().strip()

    async def end(self) -> None:
        """Asks it to end; one that does not is killed."""
        self.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            await self.exit_code(_END_S)


class HostilePeers:
    """A hostile client, a hostile node and a hostile web peer, at work inside the block.

    Attributes:
        history: complete when the block has been left.
    """

    def __init__(self, world: World, seed: int) -> None:
        self.history = HostileHistory()
        self._world = world
        self._rng = random.Random(seed)
        self._peers = {who: _Program(f"hostile_{who}") for who in HOSTILE_PEERS}
        self._watcher, self._control = _Program("watcher", "watch"), _Program("watcher", "control")
        self._sampling: asyncio.Task[None] | None = None
        self._told: dict[str, tuple[str, int]] = {}

    async def __aenter__(self) -> Self:
        self._control.run()
        control = (await self._control.said(), self._control.process.pid)
        self._tell(control)
        targets = self._watcher.records.with_name("targets")
        env = {"WATCH_TARGETS": str(targets), "WATCH_RECORDS": str(self._watcher.records)}
        self._watcher.run(**env)
        await self._sample()
        self._sampling = asyncio.create_task(self._sample_on(control))
        for program in self._peers.values():
            program.run(
                HOSTILE_SEED=str(self._rng.randrange(2**32)),
                HOSTILE_RECORDS=str(program.records),
                HOSTILE_WEB=",".join(self._world.web_addresses.values()),
                HOSTILE_GATEWAYS=self._addresses("gateway"),
                HOSTILE_DISPATCHERS=self._addresses("dispatcher"),
                HOSTILE_POOLS=self._addresses("pool"),
            )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        programs = (*self._peers.values(), self._watcher, self._control)
        try:
            await asyncio.gather(*(each.end() for each in programs))
            if self._sampling is not None:
                self._sampling.cancel()
                await asyncio.gather(self._sampling, return_exceptions=True)
            self._collect()
        finally:
            for each in programs:
                each.stop()

    async def done(self) -> None:
        """Returns when each of them has done all of its acts, however slow the machine is."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_DONE_S):
                while not all(map(_cycles, self._peers.values())):  # noqa: ASYNC110, other processes
                    await asyncio.sleep(_SAMPLE_S)

    def _collect(self) -> None:
        acts: Counter[str] = Counter()
        for who, program in self._peers.items():
            for each in read_records(program.records):
                if each["what"] == "act":
                    acts[f"{who}: {each['name']}"] += 1
                elif each["what"] == "broke":
                    self.history.broke.append(f"{who}: {each['name']}: {each['traceback']}")
            self.history.cycles[who] = _cycles(program)
        self.history.acts = dict(sorted(acts.items()))
        self.history.silences = silences(read_records(self._watcher.records))

    # ---- watching ----

    async def _sample_on(self, control: tuple[str, int]) -> None:
        while True:
            await asyncio.sleep(_SAMPLE_S)
            self._tell(control)
            await self._sample()

    def _tell(self, control: tuple[str, int]) -> None:
        """Tells the watcher which processes there are now."""
        targets = {**self._world.watched(), CONTROL: control}
        if targets != self._told:
            self._told = targets
            new = self._watcher.records.with_name("targets.new")
            new.write_text(json.dumps(targets))
            new.rename(self._watcher.records.with_name("targets"))

    async def _sample(self) -> None:
        now = time.monotonic()
        for name, process in self._world.processes.items():
            if process.process.poll() is not None:
                self.history.ended.append((now, name))
            else:
                self._note_memory(name, process.memory_bytes() / 2**20)
        with contextlib.suppress(redis.RedisError):
            info = await asyncio.to_thread(self._world.store.ask, "INFO", "memory")
            self._note_memory("redis", info["used_memory"] / 2**20)
        with contextlib.suppress(grpc.aio.AioRpcError):
            for node in await self._world.known_nodes():
                if node.node_id in self._world.nodes and (why := _why_out(node)):
                    self.history.out.append((now, node.node_id, why))

    def _note_memory(self, name: str, mb: float) -> None:
        if mb:
            before, most = self.history.memory_mb.get(name, (mb, mb))
            self.history.memory_mb[name] = (before, max(most, mb))

    def _addresses(self, kind: str) -> str:
        """Those of the services themselves: links of the tests' network are for honest traffic."""
        return ",".join(self._world.services[name].address for name in self._world.of(kind))


def _cycles(program: _Program) -> int:
    return sum(each["what"] == "cycle" for each in read_records(program.records))


def _why_out(node: pool_pb2.Node) -> str:
    """Why a node gets no jobs; "" if it may get some."""
    if node.ejected_until_ms > 1000 * time.time():
        return "ejected"
    return "offline" if node.health == common_pb2.NODE_HEALTH_OFFLINE else ""
