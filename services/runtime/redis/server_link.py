"""A connection to a Redis primary: batched calls that fail fast, and automatic reconnection."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import random
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from redis.exceptions import RedisError

from lingua_scheduler.services.runtime.deadlines import DeadlineTimer
from lingua_scheduler.services.runtime.errors import DependencyDownError
from lingua_scheduler.services.runtime.redis.connection import LinkConnection, PendingCall
from lingua_scheduler.services.runtime.redis.data_format import check_format
from lingua_scheduler.services.runtime.redis.primary import (
    PrimaryFinder,
    RedisUnfitError,
    ScriptError,
    Wire,
    check_fit,
    in_full,
    load_scripts,
    new_wire,
)
from lingua_scheduler.services.runtime.settings.redis_url import Address, parse_redis_url

DEFAULT_TIMEOUT_MS = 400
# While one batch is in flight the next can be sent, so a slow script does not hold up everything.
# On the loopback interface one connection is as fast; each further one makes the batches smaller,
# and a batch costs about as much as ten calls in it.
CONNECTIONS = 2
# Redis serves nobody else between the commands of one read: 256 scripts of 30 us are 8 ms.
MAX_BATCH = 256
# Short enough that a caller's retry finds the link up again, long enough for a busy Redis.
PROBE_MIN_S, PROBE_MAX_S = 0.1, 0.25
# If the link goes down this soon after it came up, the first probe waits.
STEADY_S = 1.0
# A probe does more than a call: it asks sentinels, negotiates TLS, loads every script.
PROBE_TIMEOUT_S = 2.0
# Between two attempts to find a cluster node that has the whole slot while calls wait for it.
FOLLOW_PAUSE_S = 0.02
# How a call fails: the link was down; no reply in time; the connection broke; Redis refused it
# because of its own state; the script or command was at fault.
ERROR_KINDS = ("away", "timeout", "lost", "refused", "error")

_log = logging.getLogger(__name__)


class ServerLink:
    """Sends packed calls to the primary that holds the keys under `prefix`.

    Promises what RedisLink promises.

    Args:
        url: in the form of LINGUA_REDIS_URL.
        prefix: on a Redis Cluster its slot decides which primary that is, so it must have a hash
            tag.
        scripts: name and Lua source.
        timeout_ms: time limit of a call.

    Raises:
        BadRedisUrlError: the URL or the prefix cannot be used.
    """

    def __init__(
        self,
        *,
        url: str,
        prefix: str,
        scripts: Mapping[str, str],
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
    ) -> None:
        self._target = parse_redis_url(url)
        self._target.check_prefix(prefix)
        self._finder = PrimaryFinder(target=self._target, prefix=prefix)
        self.prefixes = [prefix]
        """Of the keys of all links that share this one."""
        self._timeout_ms = timeout_ms
        self._timeout = timeout_ms / 1000
        self._scripts = dict(scripts)
        # EVALSHA identifies scripts by their SHA-1. Its strength does not matter.
        self._shas = {
            name: hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
            for name, source in scripts.items()
        }
        self._loop: asyncio.AbstractEventLoop
        self._address: Address | None = None
        # Incremented each time the link comes up. A connection with a lower number is out of date.
        self._generation = 0
        self._up = False
        # The queue waits for a cluster node that has the whole slot.
        self._held = False
        self._closing = False
        self._up_since = -math.inf
        self._down_reason = "it has not been opened"
        self._connections: list[LinkConnection] = []
        self._idle: list[asyncio.Future[None]] = []
        self._queue: deque[PendingCall] = deque()
        # Every call under way, oldest first. All have the same time limit, so the first expires
        # first and one timer is enough.
        self._under_way: deque[PendingCall] = deque()
        self._timer = DeadlineTimer(self._expire)
        self._probe: asyncio.Task[None] | None = None
        self.on_change: list[Callable[[bool, str], None]] = []
        """Called with (up, reason) after each change, also of the primary; must not block."""
        self.on_error: list[Callable[[str], None]] = []
        """Called with its kind, one of ERROR_KINDS, for each call that fails; must not block."""

    @property
    def up(self) -> bool:
        """Whether calls are being sent."""
        return self._up

    @property
    def down_reason(self) -> str:
        """Why the link is down, as text; empty while it is up."""
        return self._down_reason

    async def open(self, *, wait: bool = True) -> None:
        """Finds the primary, checks that it is suitable, and loads the scripts.

        Args:
            wait: if the primary cannot be reached, fail; otherwise the link comes up by itself when
                it can be.

        Raises:
            RedisUnfitError: too old, or it may evict keys; the message says what to set. Or its
                data are of a format that this release cannot read.
            ScriptError: a script does not compile.
            DependencyDownError: the primary cannot be found or reached.
        """
        if self._connections:
            raise RuntimeError("this link is already open")
        self._loop = asyncio.get_running_loop()
        try:
            await self._attach()
        except (RedisUnfitError, ScriptError):
            raise
        except (RedisError, OSError) as error:
            if wait:
                raise self._down(in_full(error)) from error
            self._down_reason = in_full(error)
            self._probe = asyncio.create_task(self._probe_until_up())
        for _ in range(CONNECTIONS):
            connection = LinkConnection(
                target=self._target,
                scripts=self._scripts,
                down=self._down,
                on_refused=self._count,
            )
            connection.task = asyncio.create_task(self._run(connection))
            self._connections.append(connection)
        self._tell()

    async def close(self) -> None:
        """Fails all calls and closes all connections. The link can be opened again."""
        was_up, self._up, self._down_reason = self._up, False, "it is closed"
        self._closing = True
        self._timer.disarm()
        tasks = [
            task
            for task in (self._probe, *(connection.task for connection in self._connections))
            if task
        ]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._probe = None
        self._connections.clear()
        self._idle.clear()
        self._queue.clear()
        self._held = False
        while self._under_way:
            self._fail(self._under_way.popleft(), self._down_reason, "away")
        self._closing = False
        if was_up:
            self._tell()

    @property
    def address(self) -> Address | None:
        """Of the primary; None before the link was up, or if it is a unix socket."""
        return self._address

    def sha_of(self, script: str) -> str:
        """What EVALSHA calls the script."""
        return self._shas[script]

    def new_wire(self) -> Wire | None:
        """A connection of the caller's own to the primary, not yet open; None while it is down."""
        return new_wire(self._target, self._address) if self._up else None

    def send(self, name: str, packed: bytes) -> asyncio.Future[Any]:
        """Sends a packed command. The future gets the reply or the error.

        Args:
            name: of the script that it calls, or "".
            packed: the command.

        Raises:
            DependencyDownError: the link is down.
        """
        if not self._up:
            self._count("away")
            raise self._down(self._down_reason)
        loop = self._loop
        call = PendingCall(name, packed, loop.create_future(), loop.time() + self._timeout)
        self._queue.append(call)
        self._under_way.append(call)
        # If others are under way, the timer is armed.
        if len(self._under_way) == 1:
            self._timer.arm(loop, call.deadline)
        # The connection wakes up in the next iteration of the event loop, so that it also takes the
        # calls that follow in this one.
        if self._idle and len(self._queue) == 1:
            self._idle.pop().set_result(None)
        return call.future

    async def _run(self, connection: LinkConnection) -> None:
        loop = asyncio.get_running_loop()
        try:
            while not self._closing:
                if self._held or not self._queue:
                    turn = loop.create_future()
                    self._idle.append(turn)
                    await turn
                if batch := self._take_batch():
                    await self._flush(connection, batch)
                    self._forget_done()
        finally:
            await connection.close()

    def _take_batch(self) -> list[PendingCall]:
        batch: list[PendingCall] = []
        if self._held:
            return batch
        while self._queue and len(batch) < MAX_BATCH:
            call = self._queue.popleft()
            # The caller may have left, or the call expired.
            if not call.future.done():
                batch.append(call)
        if self._queue and self._idle:
            self._idle.pop().set_result(None)
        return batch

    async def _flush(self, connection: LinkConnection, batch: list[PendingCall]) -> None:
        """Sends a batch. Every call of it is then answered or failed, or in the queue again."""
        connection.deadline = self._loop.time() + self._timeout
        try:
            elsewhere = await connection.exchange(self._address, self._generation, batch)
            if elsewhere:
                self._hold(connection, elsewhere)
            return
        except (RedisError, OSError) as error:
            reason, kind = in_full(error), "lost"
        except asyncio.CancelledError:
            if not connection.overdue or connection.task is None or self._closing:
                raise
            connection.task.uncancel()
            reason, kind = self._no_answer(), "timeout"
        finally:
            connection.deadline, connection.overdue = math.inf, False
        await connection.cut()
        self._lost(connection, reason, kind)
        for call in batch:
            self._fail(call, reason, kind)

    def _expire(self, over: float) -> float:
        """Fails calls and drops connections whose deadline has passed. Returns the next one."""
        for connection in self._connections:
            if (
                connection.deadline <= over
                and not connection.overdue
                and connection.task is not None
            ):
                connection.overdue = True
                connection.task.cancel()
                self._lost(connection, self._no_answer(), "timeout")
        self._forget_done()
        while self._under_way and self._under_way[0].deadline <= over:
            reason = "its slot is moving to another server" if self._held else self._no_answer()
            self._fail(self._under_way.popleft(), reason, "timeout")
            self._forget_done()
        due = min(
            (connection.deadline for connection in self._connections if not connection.overdue),
            default=math.inf,
        )
        if self._under_way:
            due = min(due, self._under_way[0].deadline)
        return due

    def _forget_done(self) -> None:
        while self._under_way and self._under_way[0].future.done():
            self._under_way.popleft()

    def _lost(self, connection: LinkConnection, reason: str, kind: str) -> None:
        """Takes the link down, unless the connection is from before the link last came up."""
        if not self._up or connection.generation != self._generation:
            return
        self._up, self._down_reason = False, reason
        while self._queue:
            self._fail(self._queue.popleft(), reason, kind)
        if not self._held:
            self._probe = asyncio.create_task(self._probe_until_up())
        self._tell()

    def _hold(self, connection: LinkConnection, calls: list[PendingCall]) -> None:
        """Puts calls that did not run back into the queue, and has the owner of the slot found."""
        self._queue.extendleft(reversed(calls))
        if self._held or connection.generation != self._generation:
            return
        self._held = True
        self._finder.note(connection.elsewhere, self._address)
        # While the link is down, a probe is under way.
        if self._up:
            self._probe = asyncio.create_task(self._follow_slot())

    async def _follow_slot(self) -> None:
        """Puts the link up on the slot's owner; if that takes too long, the link is down."""
        over = self._loop.time() + self._timeout
        while reason := await self._try_attach(over - self._loop.time()):
            if self._loop.time() + FOLLOW_PAUSE_S > over:
                if self._up:
                    # The calls in the queue have the rest of their time.
                    self._up, self._down_reason = False, reason
                    self._tell()
                await self._probe_until_up()
                return
            await asyncio.sleep(FOLLOW_PAUSE_S)
        self._tell()

    async def _probe_until_up(self) -> None:
        steady = asyncio.get_running_loop().time() - self._up_since > STEADY_S
        pause = 0.0 if steady else PROBE_MIN_S
        while True:
            # Many services lose the same Redis at the same moment, so they spread their probes.
            await asyncio.sleep(pause * random.uniform(0.8, 1.0))
            reason = await self._try_attach(PROBE_TIMEOUT_S)
            if not reason:
                self._tell()
                return
            self._down_reason = reason
            pause = min(max(pause + 0.05, PROBE_MIN_S), PROBE_MAX_S)

    async def _try_attach(self, within_s: float) -> str:
        """As `_attach`. Returns why it failed, or nothing."""
        try:
            await self._attach(within_s)
        except (RedisUnfitError, RedisError, OSError) as error:
            return in_full(error)
        return ""

    async def _attach(self, within_s: float = PROBE_TIMEOUT_S) -> None:
        """Finds a suitable primary and puts the link up on it, or raises."""
        async with asyncio.timeout(within_s):
            address = await self._finder.find()
            wire = new_wire(self._target, address)
            try:
                await wire.connect()
                await self._finder.check_slot(wire, address)
                await check_fit(wire)
                await check_format(wire, self.prefixes)
                await load_scripts(wire, self._scripts)
            finally:
                await wire.disconnect(nowait=True)
        self._address = address
        self._generation += 1
        self._up, self._down_reason = True, ""
        self._up_since = asyncio.get_running_loop().time()
        if self._held:
            self._held = False
            while self._idle:
                self._idle.pop().set_result(None)

    def _tell(self) -> None:
        for callback in self.on_change:
            try:
                callback(self._up, self._down_reason)
            except Exception:
                _log.exception("redis link callback failed")

    def _fail(self, call: PendingCall, reason: str, kind: str) -> None:
        happened = "may have happened" if call.sent else "was not sent"
        if call.fail(self._down(reason, f"; the call {happened}")):
            self._count(kind)

    def _count(self, kind: str) -> None:
        for callback in self.on_error:
            callback(kind)

    def _no_answer(self) -> str:
        return f"no answer within {self._timeout_ms} ms"

    def _down(self, reason: str, happened: str = "") -> DependencyDownError:
        # Scheme, host and path only, because the URL may contain a password.
        return DependencyDownError(
            f"Redis cannot be used{happened}",
            why=f"{self._target.shown}: {reason}",
            retry_after_ms=int(PROBE_MAX_S * 1000),
        )
