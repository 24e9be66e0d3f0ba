"""One connection of the link to Redis, and what one batch of calls goes through on it."""

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
    is_refusal,
    load_scripts,
    needs_new_primary,
    new_wire,
)
from lingua_scheduler.services.runtime.settings.redis_url import Address, RedisTarget


class Call:
    """A packed command and the future of its reply.

    `name` is the script that it calls, if any; `sent` says that it may have happened.
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
        """Give the caller an error; False where it has its answer or has gone."""
        if self.future.done():
            return False
        self.future.set_exception(error)
        return True


class Lane:
    """A connection that one task uses for one batch at a time.

    `down` makes the error of a call that failed because of Redis; `on_refused` is told of each call
    that Redis answered with an error, by its kind. `deadline` is when the batch under way must be
    through; `overdue` says that it was not and the task has been cancelled.
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
        self._wire: Wire | None = None
        # To the same server, when it is connected.
        self._pipe: Pipe | None = None
        self.generation = 0
        self.deadline = math.inf
        self.overdue = False
        self.task: asyncio.Task[None] | None = None

    async def exchange(self, address: Address | None, generation: int, batch: list[Call]) -> None:
        """Answer or fail every call of the batch, or raise with the rest of them open.

        A raised error (RedisError, OSError) means that the connection, or the server behind it,
        is not to be used further.
        """
        pipe = self._pipe
        # Nothing of this batch has been sent, so a connection that was closed while it was idle
        # is no failure.
        if pipe is None or self.generation != generation or await pipe.is_stale():
            pipe = await self._connect(address, generation)
        without_script = await self._round_trip(pipe, batch)
        if not without_script:
            return
        # Redis was restarted or its scripts flushed. These calls did not run: repeat them.
        await load_scripts(pipe, self._scripts)
        waiting = [call for call in without_script if not call.future.done()]
        for call in await self._round_trip(pipe, waiting):
            self._refuse(call, self._down("it forgets its scripts as soon as they are loaded"))

    async def cut(self) -> None:
        """Drop the connection: a late reply on it must not be taken for that of another call."""
        self._pipe = None
        if self._wire is not None:
            await self._wire.disconnect(nowait=True)

    async def close(self) -> None:
        """Drop the connection and wait until its socket is closed."""
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

    async def _round_trip(self, pipe: Pipe, batch: list[Call]) -> list[Call]:
        """Send the calls and answer them; returns those whose script Redis does not know.

        Raises NoPrimaryError when all are answered and an answer says to look for the primary.
        """
        for call in batch:
            call.sent = True
        pipe.write(b"".join([call.packed for call in batch]))
        without_script: list[Call] = []
        look_again = ""
        for call in batch:
            while (reply := pipe.reply_in_hand()) is pipe.nothing:
                await pipe.more()
            if not isinstance(reply, RedisError):
                if not call.future.done():
                    call.future.set_result(reply)
            elif isinstance(reply, NoScriptError):
                without_script.append(call)
            elif isinstance(reply, ResponseError):
                self._refuse(call, self._translated(call, reply))
                if needs_new_primary(reply):
                    look_again = in_full(reply)
            else:
                raise reply
        if look_again:
            raise NoPrimaryError(look_again)
        return without_script

    def _refuse(self, call: Call, error: Exception) -> None:
        if call.fail(error):
            self._on_refused("error" if isinstance(error, ResponseError) else "refused")

    def _translated(self, call: Call, error: ResponseError) -> Exception:
        if needs_new_primary(error) or is_refusal(error):
            return self._down(in_full(error))
        return ScriptError(f"script {call.name}: {in_full(error)}") if call.name else error
