"""One connection of the link to Redis, which sends batches of calls and reads their replies."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from typing import Any

from redis.exceptions import NoScriptError, RedisError, ResponseError

from lingua_scheduler.services.runtime.redis.pipe import Pipe, pipe_of
from lingua_scheduler.services.runtime.redis.primary import (
    NoPrimaryError,
    ScriptError,
    Wire,
    in_full,
    is_elsewhere,
    is_refusal,
    load_scripts,
    needs_new_primary,
    new_wire,
)
from lingua_scheduler.services.runtime.settings.redis_url import Address, RedisTarget, Topology


class PendingCall:
    """A packed command that waits for its reply.

    `name` is the script that it calls, or empty. `sent` means that the command may have run.
    """

    __slots__ = ("deadline", "future", "name", "packed", "sent")

    def __init__(
        self, name: str, packed: bytes, future: asyncio.Future[Any], deadline: float
    ) -> None:
        self.name = name
        self.packed = packed
        self.future = future
        self.deadline = deadline
        self.sent = False

    def fail(self, error: Exception) -> bool:
        """Gives the caller an error. Returns False if it already has a reply or has left."""
        if self.future.done():
            return False
        self.future.set_exception(error)
        return True


class LinkConnection:
    """A connection that one task uses for one batch at a time.

    Args:
        target: the Redis to connect to.
        scripts: name and Lua source.
        down: makes the error of a call that failed because of Redis.
        on_refused: called with the kind of each error reply.

    Attributes:
        deadline: when the current batch must be complete.
        overdue: the batch was not complete by then, and the task has been cancelled.
        elsewhere: the last answer of a cluster node that it does not have the keys.
    """

    def __init__(
        self,
        *,
        target: RedisTarget,
        scripts: Mapping[str, str],
        down: Callable[[str], Exception],
        on_refused: Callable[[str], None],
    ) -> None:
        self._target = target
        self._scripts = scripts
        self._down = down
        self._on_refused = on_refused
        self._is_cluster = target.topology is Topology.CLUSTER
        self._wire: Wire | None = None
        # None until the wire is connected.
        self._pipe: Pipe | None = None
        self.generation = 0
        self.deadline = math.inf
        self.overdue = False
        self.elsewhere: ResponseError | None = None
        self.task: asyncio.Task[None] | None = None

    async def exchange(
        self, address: Address | None, generation: int, batch: list[PendingCall]
    ) -> list[PendingCall]:
        """Answers or fails every call of the batch, or raises with the rest of them open.

        Returns the calls that did not run because another cluster node has the keys, or because
        the keys are moving: they are open, and must be repeated there.

        A raised error (RedisError, OSError) means that the connection, or the server behind it,
        must not be used any more.
        """
        pipe = self._pipe
        # Nothing of this batch has been sent, so it does not matter that a connection was closed
        # while it was idle.
        if pipe is None or self.generation != generation or await pipe.is_stale():
            pipe = await self._connect(address, generation)
        without_script, elsewhere = await self._round_trip(pipe, batch)
        if not without_script:
            return elsewhere
        # Redis was restarted or its scripts were flushed. These calls did not run, so repeat them.
        await load_scripts(pipe, self._scripts)
        waiting = [call for call in without_script if not call.future.done()]
        without_script, more = await self._round_trip(pipe, waiting)
        for call in without_script:
            self._refuse(call, self._down("it loses scripts as soon as they are loaded"))
        return elsewhere + more

    async def cut(self) -> None:
        """Drops the connection, so that a late reply is not taken for that of another call."""
        self._pipe = None
        if self._wire is not None:
            await self._wire.disconnect(nowait=True)

    async def close(self) -> None:
        """Closes the connection and waits until its socket is closed."""
        self._pipe = None
        if self._wire is not None:
            await self._wire.disconnect()

    async def _connect(self, address: Address | None, generation: int) -> Pipe:
        await self.cut()
        self._wire = new_wire(self._target, address)
        self.generation = generation
        await self._wire.connect()
        self._pipe = pipe_of(self._wire)
        return self._pipe

    async def _round_trip(
        self, pipe: Pipe, batch: list[PendingCall]
    ) -> tuple[list[PendingCall], list[PendingCall]]:
        """Sends the calls and answers them.

        Returns those that did not run: Redis does not know their script; the keys are elsewhere.

        Raises:
            NoPrimaryError: all are answered, and a reply says that this is not the primary.
        """
        for call in batch:
            call.sent = True
        pipe.write(b"".join([call.packed for call in batch]))
        without_script: list[PendingCall] = []
        elsewhere: list[PendingCall] = []
        look_again = ""
        for call in batch:
            while (reply := pipe.reply_in_hand()) is pipe.nothing:
                await pipe.more()
            if not isinstance(reply, RedisError):
                if not call.future.done():
                    call.future.set_result(reply)
            elif isinstance(reply, NoScriptError):
                without_script.append(call)
            elif self._is_cluster and isinstance(reply, ResponseError) and is_elsewhere(reply):
                call.sent = False
                elsewhere.append(call)
                self.elsewhere = reply
            elif isinstance(reply, ResponseError):
                self._refuse(call, self._translated(call, reply))
                if needs_new_primary(reply):
                    look_again = in_full(reply)
            else:
                raise reply
        if look_again:
            raise NoPrimaryError(look_again)
        return without_script, elsewhere

    def _refuse(self, call: PendingCall, error: Exception) -> None:
        if call.fail(error):
            self._on_refused("error" if isinstance(error, ResponseError) else "refused")

    def _translated(self, call: PendingCall, error: ResponseError) -> Exception:
        if needs_new_primary(error) or is_refusal(error):
            return self._down(in_full(error))
        return ScriptError(f"script {call.name}: {in_full(error)}") if call.name else error
