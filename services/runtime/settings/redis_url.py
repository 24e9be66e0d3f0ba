"""The address of Redis, in the forms that LINGUA_REDIS_URL may take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from redis.asyncio.connection import Connection, parse_url
from redis.crc import key_slot
from redis.exceptions import RedisError

from lingua_scheduler.services.runtime.errors import SettingsError
from lingua_scheduler.services.runtime.settings.redis_fields import REDIS_URL_FORMS

DEFAULT_PORTS = {"": 6379, "sentinel": 26379, "cluster": 6379}
# The link sets these options, so a URL must not.
OURS = frozenset(
    {
        "decode_responses",
        "encoding",
        "encoding_errors",
        "health_check_interval",
        "host",
        "legacy_responses",
        "max_connections",
        "parser_class",
        "path",
        "port",
        "protocol",
        "retry",
        "retry_on_error",
        "retry_on_timeout",
        "socket_connect_timeout",
        "socket_timeout",
        "timeout",
    }
)

Address = tuple[str, int]


class BadRedisUrlError(SettingsError, ValueError):
    """LINGUA_REDIS_URL or its key prefix cannot be used; the message never shows secrets."""


class Topology(Enum):
    """How the primary that holds our keys is found."""

    SINGLE = "single"
    SENTINEL = "sentinel"
    CLUSTER = "cluster"


@dataclass(frozen=True)
class RedisTarget:
    """A parsed Redis URL.

    `seeds` are the server itself, the sentinels or some nodes of the cluster; empty for a unix
    socket. `options` are keyword arguments for `connection_class` beside host and port;
    `sentinel_options` are those for the sentinels, which have other passwords and no databases.
    `shown` is the URL without user and password, for messages.
    """

    topology: Topology
    seeds: tuple[Address, ...]
    shown: str
    connection_class: type[Any]
    options: Mapping[str, Any] = field(repr=False)
    sentinel_options: Mapping[str, Any] = field(repr=False, default_factory=dict)
    master_name: str = ""

    def check_prefix(self, prefix: str) -> None:
        """Raises BadRedisUrlError unless all keys under `prefix` are on one server."""
        if self.topology is not Topology.CLUSTER:
            return
        # What follows the prefix must not change the slot.
        if slot_of(prefix) != slot_of(prefix + ":{x}") or slot_of(prefix) != slot_of(prefix + ":y"):
            raise BadRedisUrlError(
                f"LINGUA_REDIS_URL names a Redis Cluster, and the key prefix {prefix!r} has no "
                "hash tag: its keys would be spread over many servers. Put one into the prefix, "
                "such as lingua:v1:{c7}"
            )


def slot_of(key: str) -> int:
    """The Redis Cluster slot of `key`."""
    return int(key_slot(key.encode()))


def parse_redis_url(url: str) -> RedisTarget:
    """Parses LINGUA_REDIS_URL. Raises BadRedisUrlError, which says what is allowed."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise _bad("it is not a URL") from None
    base, _, kind = parts.scheme.partition("+")
    if (
        base not in ("redis", "rediss", "unix")
        or kind not in DEFAULT_PORTS
        or (base == "unix" and kind)
    ):
        raise _bad("its scheme is not one of these" if parts.scheme else "it has no scheme")
    if base == "unix":
        return _unix(url, parts)
    credentials, _, hosts = parts.netloc.rpartition("@")
    seeds = tuple(_address(each, DEFAULT_PORTS[kind]) for each in hosts.split(","))
    master_name, database = _path(parts.path, kind)
    if not kind and len(seeds) > 1:
        raise _bad("it has several hosts: use redis+sentinel:// or redis+cluster://")
    # redis-py parses the options; only what it does not know is parsed here.
    plain = f"{base}://{credentials + '@' if credentials else ''}localhost/{database}"
    connection_class, options = _options(f"{plain}?{parts.query}" if parts.query else plain)
    if kind == "cluster" and options.get("db"):
        raise _bad("a Redis Cluster has no databases but 0")
    sentinel_options: dict[str, Any] = {}
    if kind == "sentinel":
        sentinel_options = {k: v for k, v in options.items() if k.startswith("ssl_")}
        for name in ("username", "password"):
            if value := options.pop(f"sentinel_{name}", None):
                sentinel_options[name] = value
    _try_out(connection_class, options)
    return RedisTarget(
        topology=Topology(kind or "single"),
        seeds=seeds,
        shown=f"{parts.scheme}://{hosts}{parts.path}",
        connection_class=connection_class,
        options=options,
        sentinel_options=sentinel_options,
        master_name=master_name,
    )


def _unix(url: str, parts: SplitResult) -> RedisTarget:
    if not parts.path:
        raise _bad("it has no path to a socket")
    connection_class, options = _options(url)
    options["path"] = unquote(parts.path)
    _try_out(connection_class, options)
    return RedisTarget(
        topology=Topology.SINGLE,
        seeds=(),
        shown=f"unix://{parts.path}",
        connection_class=connection_class,
        options=options,
    )


def _address(text: str, default_port: int) -> Address:
    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host:
        # The text is not shown, because with an unescaped # or / it is a part of the password.
        raise _bad("a host is missing or is not host:port (escape # / @ in a password)")
    return host, port or default_port


def _path(path: str, kind: str) -> tuple[str, int]:
    """The master's name (sentinel only) and the database."""
    segments = [unquote(each) for each in path.strip("/").split("/") if each]
    master_name = ""
    if kind == "sentinel":
        if not segments:
            raise _bad("it lacks the name of the master that the sentinels watch")
        master_name = segments.pop(0)
    if len(segments) > 1 or (segments and not segments[0].isdecimal()):
        raise _bad("its path must end in the number of a database")
    return master_name, int(segments[0]) if segments else 0


def _options(plain_url: str) -> tuple[type[Any], dict[str, Any]]:
    try:
        options: dict[str, Any] = dict(parse_url(plain_url))
    except ValueError as error:
        # redis-py's message names the option, not its value.
        raise _bad(str(error)) from None
    connection_class = options.pop("connection_class", Connection)
    query = urlsplit(plain_url).query
    set_by_url = {pair.partition("=")[0] for pair in query.split("&")}
    if refused := sorted(OURS & set_by_url):
        raise _bad(f"it sets {', '.join(refused)}, which the scheduler sets itself")
    for name in ("host", "port", "path"):
        options.pop(name, None)
    return connection_class, options


def _try_out(connection_class: type[Any], options: Mapping[str, Any]) -> None:
    """Finds unknown options and bad values now, rather than at the first call."""
    try:
        connection_class(**options)
    except (TypeError, ValueError, RedisError) as error:
        raise _bad(f"redis-py refuses its options: {error}") from None


def _bad(problem: str) -> BadRedisUrlError:
    return BadRedisUrlError(
        f"LINGUA_REDIS_URL cannot be used: {problem}. Allowed are {REDIS_URL_FORMS}"
    )
