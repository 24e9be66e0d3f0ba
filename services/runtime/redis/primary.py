"""Finds the Redis server that holds our keys, and checks that it is suitable.

All keys of a prefix are on one primary, whatever the topology. So all three topologies are handled
alike: ask for the primary, connect to it as to a single server, and ask again if it fails.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Protocol

from hiredis import pack_command
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    AskError,
    BusyLoadingError,
    ClusterDownError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError

from lingua_scheduler.services.runtime.errors import SettingsError
from lingua_scheduler.services.runtime.settings.redis_url import (
    Address,
    RedisTarget,
    Topology,
    slot_of,
)

MIN_VERSION = (6, 2)
# A backstop only: callers have shorter time limits.
CONNECT_TIMEOUT_S = 2.0
# One sentinel or cluster node that hangs must not use up the time for asking the next.
ASK_TIMEOUT_S = 0.25

# Errors that say that the primary is another server now, or that this one cannot serve for a while.
_LOOK_AGAIN = (AskError, BusyLoadingError, ClusterDownError, ReadOnlyError, TryAgainError)
_LOOK_AGAIN_CODES = frozenset(
    {"ASK", "BUSY", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "MOVED", "READONLY"}
    | {"TRYAGAIN", "UNBLOCKED"}
)
# The right server refuses writes for now; looking for another one would not help.
_REFUSED_CODES = frozenset({"MISCONF", "NOREPLICAS", "OOM"})
# Redis before 7 wraps the error of a command inside a script into a message of its own.
_WRAPPED_CODE = re.compile(r"@user_script: ?\d+: -?([A-Z]+) ")


class RedisUnfitError(SettingsError):
    """The server works, but the scheduler could not keep its promises on it."""


class ScriptError(ResponseError):
    """A script failed through a fault of its own; Redis is healthy."""


class NoPrimaryError(RedisConnectionError):
    """No server could name the primary, or the named server is not a primary."""


class ElsewhereError(NoPrimaryError):
    """A cluster node does not have all keys of the slot: another has them, or they are moving."""


class CommandChannel(Protocol):
    """Sends commands and reads their replies."""

    async def send_packed_command(self, command: bytes, check_health: bool = True) -> None:
        """Sends packed commands."""

    async def read_response(self) -> Any:
        """Reads the next reply; raises ResponseError if it is an error."""


class Wire(CommandChannel, Protocol):
    """The part of redis-py's connections that the link uses."""

    async def connect(self) -> None:
        """Opens the socket, authenticates, selects the database."""

    async def disconnect(self, nowait: bool = False) -> None:
        """Closes the socket; unread replies are lost."""


def new_wire(target: RedisTarget, address: Address | None) -> Wire:
    """Makes a connection, not yet open, that never retries.

    A call that timed out may have run, and only its caller knows whether to repeat it.
    """
    return _wire(target.connection_class, target.options, address)


def _wire(
    connection_class: type[Any],
    options: Mapping[str, Any],
    address: Address | None,
) -> Wire:
    place = {} if address is None else {"host": address[0], "port": address[1]}
    wire: Wire = connection_class(
        **options,
        **place,
        protocol=2,
        socket_timeout=None,
        socket_connect_timeout=CONNECT_TIMEOUT_S,
        retry=Retry(NoBackoff(), 0),
    )
    return wire


def pack(*args: str | bytes | int | float) -> bytes:
    """Encodes a command. Raises TypeError for arguments of other types, including bool."""
    # hiredis declares a tuple of length one, but accepts any length.
    packed: bytes = pack_command(args)  # type: ignore[arg-type]
    return packed


async def ask(wire: CommandChannel, *commands: tuple[str, ...]) -> list[Any]:
    """Sends commands in one round trip. Error replies are returned as exceptions, not raised."""
    await wire.send_packed_command(b"".join([pack(*each) for each in commands]), False)
    replies: list[Any] = []
    for _ in commands:
        try:
            replies.append(await wire.read_response())
        except ResponseError as error:
            replies.append(error)
    return replies


class PrimaryFinder:
    """Finds the primary, and remembers the servers that know it."""

    def __init__(self, *, target: RedisTarget, prefix: str) -> None:
        self._target = target
        self._prefix = prefix
        self._slot = slot_of(prefix)
        self._known: list[Address] = list(target.seeds)
        self._learned: list[Address] = []
        self._named: Address | None = None

    async def find(self) -> Address | None:
        """The primary's address; None if the target is a unix socket.

        Raises:
            NoPrimaryError: no server could name the primary.
        """
        if self._target.topology is Topology.SINGLE:
            return self._target.seeds[0] if self._target.seeds else None
        if self._named is not None:
            named, self._named = self._named, None
            return named
        problems: list[str] = []
        for seed in self._known:
            try:
                async with asyncio.timeout(ASK_TIMEOUT_S):
                    found = await self._ask_one(seed)
            except (RedisError, OSError, TimeoutError) as error:
                problems.append(f"{seed[0]}:{seed[1]}: {error or 'no answer'}")
                continue
            # The server that answered is asked first next time, so that an unreachable one delays
            # only once. The servers of the URL stay in the list, however the cluster changes.
            self._known = list(dict.fromkeys([seed, *self._learned, *self._target.seeds]))
            return found
        raise NoPrimaryError(
            f"no {'sentinel' if self._target.master_name else 'cluster node'} could name the "
            f"primary ({'; '.join(problems)})"
        )

    def note(self, error: Exception | None, asked: Address | None) -> None:
        """Takes the server that a MOVED or ASK names as the next to find, once."""
        if isinstance(error, AskError) and error.host != "?":
            # A node that does not know its own host leaves it empty.
            host = error.host or (asked[0] if asked else "")
            self._named = (host, error.port) if host else None

    async def check_slot(self, wire: Wire, asked: Address | None) -> None:
        """Raises ElsewhereError if it is a cluster node that does not have the whole slot.

        There is no key that is named as the prefix alone. So a node whose slot is on its way to
        another answers ASK, whatever it still has, as it does to scripts, whose only declared key
        is the prefix.
        """
        if self._target.topology is not Topology.CLUSTER:
            return
        (reply,) = await ask(wire, ("EXISTS", self._prefix))
        if isinstance(reply, ResponseError) and is_elsewhere(reply):
            self.note(reply, asked)
            raise ElsewhereError(f"slot {self._slot} is on its way to another server")
        if isinstance(reply, Exception):
            raise reply

    async def _ask_one(self, seed: Address) -> Address:
        if self._target.topology is Topology.SENTINEL:
            options = self._target.sentinel_options
            command: tuple[str, ...] = (
                "SENTINEL",
                "GET-MASTER-ADDR-BY-NAME",
                self._target.master_name,
            )
        else:
            options = self._target.options
            command = ("CLUSTER", "SLOTS")
        wire = _wire(self._target.connection_class, options, seed)
        async with _opened(wire):
            (reply,) = await ask(wire, command)
        if isinstance(reply, Exception):
            raise reply
        if self._target.topology is Topology.CLUSTER:
            return self._slot_owner(reply, seed)
        if not reply:
            raise NoPrimaryError(f"knows no master named {self._target.master_name!r}")
        return reply[0].decode(), int(reply[1])

    def _slot_owner(self, ranges: list[Any], asked: Address) -> Address:
        owner: Address | None = None
        learned: list[Address] = []
        for first, last, *nodes in ranges:
            # A node that does not know its own host leaves it empty; it is the host that was asked.
            places = [((host or b"").decode() or asked[0], int(port)) for host, port, *_ in nodes]
            learned += [place for place in places if place[0] != "?"]
            if first <= self._slot <= last:
                owner = places[0]
        if owner is None or owner[0] == "?":
            raise NoPrimaryError(f"no cluster node owns slot {self._slot}")
        self._learned = learned
        return owner


async def check_fit(wire: Wire) -> None:
    """Raises NoPrimaryError if the server is a replica, RedisUnfitError if it is unsuitable."""
    (info,) = await ask(wire, ("INFO",))
    if isinstance(info, Exception):
        if needs_new_primary(info):
            raise info
        raise RedisUnfitError(f"Redis refuses INFO ({info}): allow it for the scheduler's user")
    facts = dict(
        line.split(":", 1) for line in info.decode(errors="replace").splitlines() if ":" in line
    )
    # Valkey always reports redis_version 7.2.4.
    version = facts.get("valkey_version") or facts.get("redis_version", "")
    if tuple(int(part) for part in re.findall(r"\d+", version)[:2]) < MIN_VERSION:
        least = ".".join(map(str, MIN_VERSION))
        raise RedisUnfitError(f"Redis {version or 'of unknown version'} is too old: {least} needed")
    if facts.get("role") != "master":
        raise NoPrimaryError("the server is a replica, not a primary")
    policy = facts.get("maxmemory_policy") or await _configured_policy(wire)
    if policy != "noeviction":
        raise RedisUnfitError(
            f"Redis has maxmemory-policy {policy or 'unknown'} and may evict keys: leases and jobs "
            "would vanish. Set it: CONFIG SET maxmemory-policy noeviction, and in redis.conf "
            "(or in the parameter group of a managed Redis)"
        )


async def load_scripts(wire: CommandChannel, scripts: Mapping[str, str]) -> None:
    """Loads scripts (name and source) into the server.

    Raises:
        ScriptError: names the script that does not compile.
    """
    replies = await ask(wire, *(("SCRIPT", "LOAD", source) for source in scripts.values()))
    for name, reply in zip(scripts, replies, strict=True):
        if isinstance(reply, Exception):
            if needs_new_primary(reply):
                raise NoPrimaryError(in_full(reply))
            raise ScriptError(f"script {name} cannot be loaded: {in_full(reply)}")


async def _configured_policy(wire: Wire) -> str:
    (reply,) = await ask(wire, ("CONFIG", "GET", "maxmemory-policy"))
    return reply[1].decode() if isinstance(reply, list) and len(reply) == 2 else ""


def needs_new_primary(error: Exception) -> bool:
    """Whether an error means that this server is not, or not yet, the primary."""
    return isinstance(error, _LOOK_AGAIN) or _code(error) in _LOOK_AGAIN_CODES


def is_elsewhere(error: ResponseError) -> bool:
    """Whether a cluster node refused a call, which then did not run, because of its slot."""
    if isinstance(error, TryAgainError):
        # One that comes out of a script, which then ran in part, names the script.
        return "script" not in str(error)
    return isinstance(error, AskError)


def is_refusal(error: Exception) -> bool:
    """Whether the primary refused because of its own state (out of memory, disk, replicas)."""
    return isinstance(error, OutOfMemoryError) or _code(error) in _REFUSED_CODES


def in_full(error: Exception) -> str:
    """The error text of Redis, including the code, which redis-py strips."""
    code = getattr(error, "status_code", None)
    text = str(error) or ("no answer" if isinstance(error, TimeoutError) else type(error).__name__)
    return f"{code} {text}" if code else text


def _code(error: Exception) -> str:
    text = str(error)
    if wrapped := _WRAPPED_CODE.search(text):
        return wrapped[1]
    return getattr(error, "status_code", None) or text.partition(" ")[0]


@asynccontextmanager
async def _opened(wire: Wire) -> AsyncIterator[None]:
    try:
        await wire.connect()
        yield
    finally:
        await wire.disconnect(nowait=True)
