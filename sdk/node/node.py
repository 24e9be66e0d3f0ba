"""A node as its owner sees it."""

import asyncio
import contextlib
import logging
import os
import random
import secrets
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import IntEnum
from importlib import metadata
from typing import Literal, TypeVar

from lingua_scheduler.sdk._transport.channels import Channels, parse_addresses
from lingua_scheduler.sdk._transport.log import log
from lingua_scheduler.sdk._transport.tls import Tls
from lingua_scheduler.sdk._transport.tokens import Token, TokenSource
from lingua_scheduler.sdk.node.capabilities import capabilities, check_slots
from lingua_scheduler.sdk.node.handlers import Handler, Kind, check_picklable, kind_of
from lingua_scheduler.sdk.node.processes import ProcessWorkers
from lingua_scheduler.sdk.node.protocol.machine import NodeProtocol
from lingua_scheduler.sdk.node.serving import Serving
from lingua_scheduler.sdk.node.workers import LoopWorkers, ThreadWorkers, Workers
from lingua_scheduler.sdk.types import Stage
from lingua_scheduler.sdk.validate import check_id
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2

# How long running jobs may take after the node is told to stop.
DRAIN_SECONDS = 30.0

AnyHandler = TypeVar("AnyHandler", bound=Handler)


class Health(IntEnum):
    """The health that a node reports."""

    # It takes jobs.
    READY = common_pb2.NODE_HEALTH_READY
    # It wants no new jobs for now, for example while it loads a model.
    DEGRADED = common_pb2.NODE_HEALTH_DEGRADED


# Below the scheduler's threshold of 0.95, so that a machine that is busy with other things still
# gets jobs. The owner can decide otherwise with `Node.load`.
MOST_BY_DEFAULT = 0.9


def cpu_load() -> tuple[float, float]:
    """Returns the default load: the load average per CPU, up to 0.9, and no GPU load."""
    try:
        return min(os.getloadavg()[0] / (os.cpu_count() or 1), MOST_BY_DEFAULT), 0.0
    except OSError:
        return 0.0, 0.0


class Node:
    """Connects to a dispatcher, takes jobs, and runs its handler for each.

    It reconnects by itself, for as long as it takes. Running jobs continue meanwhile, and
    unconfirmed results are sent again. It never runs more than `slots` jobs at once.

    Args:
        node_id: 1 to 128 characters of A-Z a-z 0-9 . _ -; no other live node may have it.
        asr: languages that it recognises, such as ["en", "zh-hant"].
        semantic: languages that it repairs. A source language must be in both.
        tts: languages that it speaks; without any, it gets only jobs that want text.
        nmt: directions that it translates, as pairs; without any: from any to any.
        stages: further stages that it offers, for jobs that require them.
        slots: how many jobs run at once, 1 to 1000.
        workers: where blocking handlers run. Processes need a handler at the top level of a module.
        drain_seconds: how long running jobs may take after the node is told to stop.
        software: name and version, for operators.
        tls: None for plain text.
        token: authenticates this node: a string, a file (pathlib.Path), or a function, async or
            blocking, that returns it. Files and functions are asked at every connection, so the
            node continues with the next token when one expires.
        channels: shared with other nodes of this event loop; excludes `tls`.

    Attributes:
        load: a function that returns how busy the machine is, as (cpu, gpu), each from 0 to 1. It
            is called in the event loop, about once per heartbeat, and must be quick.

    Raises:
        ValueError: names the argument and what is allowed.
    """

    def __init__(
        self,
        *,
        node_id: str,
        asr: Sequence[str],
        semantic: Sequence[str],
        tts: Sequence[str] = (),
        nmt: Iterable[tuple[str, str]] = (),
        stages: Iterable[Stage] = (),
        slots: int = 1,
        workers: Literal["threads", "processes"] = "threads",
        drain_seconds: float = DRAIN_SECONDS,
        software: str = "",
        tls: Tls | None = None,
        token: Token | None = None,
        channels: Channels | None = None,
    ) -> None:
        if workers not in ("threads", "processes"):
            raise ValueError(f"workers: {workers!r} must be 'threads' or 'processes'")
        if drain_seconds < 0:
            raise ValueError(f"drain_seconds: {drain_seconds!r} must be 0 or more")
        if channels is not None and tls is not None:
            raise ValueError("tls: must be given to the shared channels instead")
        self.node_id = check_id("node_id", node_id)
        self.load: Callable[[], tuple[float, float]] = cpu_load
        self._slots = check_slots(slots)
        self._hello = dispatcher_pb2.Hello(
            node_id=node_id,
            incarnation=secrets.token_hex(8),
            capabilities=capabilities(asr=asr, semantic=semantic, tts=tts, nmt=nmt, stages=stages),
            max_concurrent_jobs=slots,
            software=software or _software(),
        )
        self._workers = workers
        self._drain_seconds = drain_seconds
        self._tls = tls
        self._token = TokenSource(token)
        self._channels = channels
        self._health = Health.READY
        self._handler: Handler | None = None
        self._kind = Kind.BLOCKING
        self._protocol: NodeProtocol | None = None
        self._serving: Serving | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: asyncio.Event | None = None

    def handler(self, function: AnyHandler) -> AnyHandler:
        """Sets the function that does the jobs; usually used as a decorator.

        An async generator or a coroutine runs in the event loop, a plain function or generator in
        a thread or process. It yields any number of Partial and then yields or returns one of
        Translated, Held and NoSpeech. Code after the result still runs, and keeps the slot.

        Raises:
            TypeError: it cannot be called with a job, or is async although workers are processes.
        """
        kind = kind_of(function)
        if kind is not Kind.BLOCKING and self._workers == "processes":
            raise TypeError("handler: async handlers run in the event loop, not in processes")
        self._handler, self._kind = function, kind
        return function

    @property
    def health(self) -> Health:
        """READY or DEGRADED. Can be set from any thread; the dispatcher is told at once."""
        return self._health

    @health.setter
    def health(self, health: Health) -> None:
        self._health = Health(health)
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._tell_health)

    @property
    def connected(self) -> bool:
        """Whether the node is registered at a dispatcher now."""
        return self._protocol is not None and self._protocol.welcomed

    @property
    def running(self) -> int:
        """The number of running jobs."""
        return self._protocol.running if self._protocol is not None else 0

    @property
    def unconfirmed(self) -> int:
        """The number of results that no dispatcher has confirmed yet."""
        return self._protocol.unconfirmed if self._protocol is not None else 0

    def run(self, addresses: str | Sequence[str]) -> None:
        """Serves until SIGTERM or SIGINT, then finishes its jobs. A second signal exits at once.

        Args:
            addresses: of equivalent dispatchers: "host:port", "a:1,b:2" or a list of these.

        Raises:
            NodeRefusedError: a dispatcher refuses this node, and a retry cannot help.
            ValueError: an address is malformed.
            TypeError: there is no handler, or it cannot run.
        """

        async def serve() -> None:
            with self._signals():
                await self.serve(addresses)

        asyncio.run(serve())

    async def serve(self, addresses: str | Sequence[str]) -> None:
        """Like `run`, but without signal handlers: serves until `stop`.

        If it is cancelled, it ends at once: handlers are cancelled and the stream is dropped.
        """
        if self._serving is not None:
            raise RuntimeError(f"node {self.node_id} is already being served")
        found = parse_addresses(addresses)
        workers = self._make_workers()
        channels = self._channels or Channels(tls=self._tls)
        protocol = self.make_protocol(self._hello)
        protocol.set_health(common_pb2.NodeHealth.ValueType(self._health))
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._protocol = protocol
        self._serving = Serving(
            node_id=self.node_id,
            protocol=protocol,
            workers=workers,
            addresses=found,
            channels=channels,
            token=self._token,
            load=lambda: self.load(),
            drain_seconds=self._drain_seconds,
            rng=random.Random(),
        )
        try:
            await self._serving.run()
        finally:
            self._serving = self._loop = None
            self._ended.set()
            if self._channels is None:
                await channels.close()

    async def stop(self) -> None:
        """Rejects new jobs, finishes running ones, and returns when `serve` has ended."""
        if self._serving is not None and self._ended is not None:
            self._serving.drain()
            await self._ended.wait()

    def make_protocol(self, hello: dispatcher_pb2.Hello) -> NodeProtocol:
        """Returns the node's protocol. Simulated nodes override it to misbehave."""
        return NodeProtocol(hello=hello)

    def _tell_health(self) -> None:
        if self._protocol is not None and self._serving is not None:
            self._protocol.set_health(common_pb2.NodeHealth.ValueType(self._health))
            self._serving.wake()

    def _make_workers(self) -> Workers:
        if self._handler is None:
            raise TypeError("handler: is missing, see Node.handler")
        if self._kind is not Kind.BLOCKING:
            return LoopWorkers(self._handler, self._kind)
        if self._workers == "threads":
            return ThreadWorkers(self._handler, self._slots)
        check_picklable(self._handler)
        return ProcessWorkers(self._handler, self._slots)

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Within the block, the first signal drains the node and the second ends the process."""
        loop = asyncio.get_running_loop()
        told = False

        def handle(number: signal.Signals) -> None:
            nonlocal told
            if told or self._serving is None:
                logging.shutdown()
                os._exit(128 + number)
            told = True
            fields = {"node_id": self.node_id, "hint": "a second signal exits at once"}
            log.info("node draining", extra=fields)
            self._serving.drain()

        handled = (signal.SIGTERM, signal.SIGINT)
        # Windows has no such handlers, and only the main thread may set them.
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            for number in handled:
                loop.add_signal_handler(number, handle, number)
        try:
            yield
        finally:
            for number in handled:
                with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
                    loop.remove_signal_handler(number)


def _software() -> str:
    try:
        return f"lingua-scheduler-sdk {metadata.version('lingua-scheduler')}"
    except metadata.PackageNotFoundError:
        return "lingua-scheduler-sdk"
