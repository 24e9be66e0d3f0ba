"""A service's link to Redis: calls scripts and commands with the keys under one prefix."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from opentelemetry import trace

from lingua_scheduler.services.runtime.redis.primary import Wire, pack
from lingua_scheduler.services.runtime.redis.server_link import (
    DEFAULT_TIMEOUT_MS,
    ServerLink,
)
from lingua_scheduler.services.runtime.redis.spans import with_span
from lingua_scheduler.services.runtime.telemetry.traces import span_writer_if_on


class RedisLink:
    """Calls Lua scripts on the primary that holds the keys under `prefix`.

    Promises:
    - A call returns, or fails with DependencyDownError, within `timeout_ms` of being made. A call
      that was sent and failed may have run.
    - Calls made at the same time share a round trip. Their order is undefined.
    - While the link is down, calls fail at once. It comes up by itself, on whatever server is the
      primary by then.
    - The link repeats a call only if it certainly did not run.
    - While a Redis Cluster moves the slot to another primary, calls wait, and go on there. If that
      takes longer than a call may, the link is down until it is done.

    Args:
        url: in the form of LINGUA_REDIS_URL.
        prefix: of every key; on a Redis Cluster it must have a hash tag.
        scripts: name and Lua source. A script's KEYS[1] is the prefix.
        timeout_ms: time limit of a call.
        server: the connection of another link to the same server, which this one then shares.

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
        server: ServerLink | None = None,
    ) -> None:
        self.prefix = prefix
        """Of every key."""
        self.server = server or ServerLink(
            url=url, prefix=prefix, scripts=scripts, timeout_ms=timeout_ms
        )
        """The connection, which may be shared with links that have other prefixes."""
        if server is not None:
            server.prefixes.append(prefix)
        self._sha_of = self.server.sha_of
        self._send = self.server.send

    @property
    def up(self) -> bool:
        """Whether calls are being sent."""
        return self.server.up

    @property
    def down_reason(self) -> str:
        """Why the link is down, as text; empty while it is up."""
        return self.server.down_reason

    @property
    def on_change(self) -> list[Callable[[bool, str], None]]:
        """Called with (up, reason) after each change, also of the primary; must not block."""
        return self.server.on_change

    @property
    def on_error(self) -> list[Callable[[str], None]]:
        """Called with its kind, one of ERROR_KINDS, for each call that fails; must not block."""
        return self.server.on_error

    async def open(self) -> None:
        """Opens the connection. Raises as `ServerLink.open`."""
        await self.server.open()

    async def close(self) -> None:
        """Fails all calls and closes all connections. The link can be opened again."""
        await self.server.close()

    async def call(self, script: str, *args: str | bytes | int | float) -> Any:
        """Runs a script by name. Returns the raw RESP2 reply (bytes, int, list or None).

        Raises:
            DependencyDownError: Redis is unreachable or slow, or refuses writes.
            ScriptError: the script itself failed.
        """
        packed = pack("EVALSHA", self._sha_of(script), 1, self.prefix, *args)
        # Calls outside a trace (a sweep, a heartbeat) get no span.
        spans = span_writer_if_on()
        if spans is None:
            return await self._send(script, packed)
        parent = trace.get_current_span().get_span_context()
        if not parent.trace_flags.sampled:
            return await self._send(script, packed)
        call = self._send(script, packed)
        return await with_span(spans, parent, script, self.server.address, call)

    def send(self, script: str, *args: str | bytes | int | float) -> asyncio.Future[Any]:
        """As `call`, without a span. The future gets the reply or the error.

        Raises:
            DependencyDownError: the link is down.
        """
        return self._send(script, pack("EVALSHA", self._sha_of(script), 1, self.prefix, *args))

    async def command(self, *args: str | bytes | int | float) -> Any:
        """Runs a plain command, one word per argument. Returns the raw reply.

        Raises:
            DependencyDownError: as `call`.
            ResponseError: Redis refused the command.
        """
        return await self._send("", pack(*args))

    def new_wire(self) -> Wire | None:
        """A connection of the caller's own to the primary, not yet open; None while it is down."""
        return self.server.new_wire()
