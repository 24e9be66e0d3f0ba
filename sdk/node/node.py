"""A node: what its owner sees of this SDK."""

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

# What running jobs may take when the node is told to stop.
DRAIN_SECONDS = 30.0

AnyHandler = TypeVar("AnyHandler", bound=Handler)

_log = logging.getLogger("lingua_scheduler.sdk")


class Health(IntEnum):
    """How a node feels."""

    # Takes jobs.
    READY = common_pb2.NODE_HEALTH_READY
    # Asks for no new jobs for now, for example while it loads a model.
    DEGRADED = common_pb2.NODE_HEALTH_DEGRADED


# Below the scheduler's threshold of 0.95: whether a machine that is busy with other things should
# get no jobs is for its owner to say, by `Node.load`.
MOST_BY_DEFAULT = 0.9


def cpu_load() -> tuple[float, float]:
    """The default load: runnable processes for each CPU over the last minute, up to 0.9; no GPU."""
    try:
        return min(os.getloadavg()[0] / (os.cpu_count() or 1), MOST_BY_DEFAULT), 0.0
    except OSError:
        return 0.0, 0.0


class Node:
    """Connects to a dispatcher, takes jobs, and has them done by its handler.

    It reconnects by itself, for as long as it takes, and brings along what is running and what was
    not confirmed. It never runs more than `slots` jobs at once.

    Args:
        node_id: 1 to 128 characters of A-Z a-z 0-9 . _ -; no other live node may have it.
        asr: languages that it recognises, such as ["en", "zh-hant"].
        semantic: languages that it repairs. A source language must be in both.
        tts: languages that it speaks; without any, it serves text jobs only.
        nmt: directions that it translates, as pairs; without any: from any to any.
        stages: what it offers beyond the languages, for jobs that require it.
        slots: jobs at once, 1 to 1000.
        workers: where blocking handlers run. Processes need a handler at the top of a module.
        drain_seconds: what running jobs may take when the node is to stop.
        software: name and version, for operators.
        tls: None for plain text.
        token: who this node is: a text, a file (pathlib.Path) that has it, or a function, async or
            blocking, that gives it. File and function are asked at every connection, so the node
            goes on with the next token where one expires.
        channels: shared with other nodes of this event loop; excludes `tls`.

    Attributes:
        load: a function that says how busy the machine is, as (cpu, gpu), each from 0 to 1. It is
            called in the event loop, about once a heartbeat, and has to be quick.

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
        """Has jobs done by this function; usually as a decorator.

        An async generator or a coroutine runs in the event loop, a plain function or generator in
        a thread or process. It gives any number of Partial and then one of Translated, Held and
        NoSpeech. What follows the result is run, but keeps the slot.

        Raises:
            TypeError: it cannot be called with a job, or is async where workers are processes.
        """
        kind = kind_of(function)
        if kind is not Kind.BLOCKING and self._workers == "processes":
            raise TypeError("handler: async handlers run in the event loop, not in processes")
        self._handler, self._kind = function, kind
        return function

    @property
    def health(self) -> Health:
        """READY or DEGRADED; may be set from any thread, and the dispatcher hears of it at once."""
        return self._health

    @health.setter
    def health(self, health: Health) -> None:
        self._health = Health(health)
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._tell_health)

    @property
    def connected(self) -> bool:
        """Whether a dispatcher has taken this node in."""
        return self._protocol is not None and self._protocol.welcomed

    @property
    def running(self) -> int:
        """Jobs under way."""
        return self._protocol.running if self._protocol is not None else 0

    @property
    def unconfirmed(self) -> int:
        """Results that no dispatcher has confirmed yet."""
        return self._protocol.unconfirmed if self._protocol is not None else 0

    def run(self, addresses: str | Sequence[str]) -> None:
        """Serves until SIGTERM or SIGINT, then finishes what it has; a second signal ends at once.

        Args:
            addresses: of dispatchers: "host:port", "a:1,b:2" or a list of such.

        Raises:
            NodeRefusedError: a dispatcher will never have this node as it is.
            ValueError: the addresses are malformed.
            TypeError: there is no handler, or none that can run.
        """

        async def serve() -> None:
            with self._signals():
                await self.serve(addresses)

        asyncio.run(serve())

    async def serve(self, addresses: str | Sequence[str]) -> None:
        """As `run`, without the signals: serves until `stop`.

        Cancelling it ends at once: handlers are cancelled, and dispatchers find the stream gone.
        """
        if self._serving is not None:
            raise RuntimeError(f"node {self.node_id} is being served already")
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
        """Takes nothing new, finishes what runs, says goodbye. Returns when `serve` has ended."""
        if self._serving is not None and self._ended is not None:
            self._serving.drain()
            await self._ended.wait()

    def make_protocol(self, hello: dispatcher_pb2.Hello) -> NodeProtocol:
        """How the node speaks; simulations override it to speak badly."""
        return NodeProtocol(hello=hello)

    def _tell_health(self) -> None:
        if self._protocol is not None and self._serving is not None:
            self._protocol.set_health(common_pb2.NodeHealth.ValueType(self._health))
            self._serving.wake()

    def _make_workers(self) -> Workers:
        if self._handler is None:
            raise TypeError("handler: a node needs one, see Node.handler")
        if self._kind is not Kind.BLOCKING:
            return LoopWorkers(self._handler, self._kind)
        if self._workers == "threads":
            return ThreadWorkers(self._handler, self._slots)
        check_picklable(self._handler)
        return ProcessWorkers(self._handler, self._slots)

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Within this block the first signal drains, and the second ends the process."""
        loop = asyncio.get_running_loop()
        told = False

        def handle(number: signal.Signals) -> None:
            nonlocal told
            if told or self._serving is None:
                logging.shutdown()
                os._exit(128 + number)
            told = True
            _log.info("node %s: draining; a second signal ends at once", self.node_id)
            self._serving.drain()

        handled = (signal.SIGTERM, signal.SIGINT)
        # Not everywhere: Windows has no such handlers, and other threads may not set them.
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
