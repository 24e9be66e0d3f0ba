"""Connections to the scheduler: addresses, gRPC options, and sharing within a process."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address

import grpc

from lingua_scheduler.sdk._transport.tls import Tls, TlsFiles
from lingua_scheduler.sdk._transport.wire import MAX_MESSAGE_BYTES

# As often as the services ping, and often enough for proxies that close idle connections.
KEEPALIVE_MS = 20_000
KEEPALIVE_TIMEOUT_MS = 10_000
# Some proxies allow no more streams on one connection.
STREAMS_EACH = 100

# By default gRPC waits up to two minutes before it retries a dead address. Here the backoff of the
# node or session decides. The minimum backoff is also the time limit of one attempt to connect.
_RETRY_FIRST_MS = 100
_RETRY_LAST_MS = 1000
_CONNECT_MS = 5000
# A name's addresses may change with every roll-out. By default gRPC resolves it twice a minute.
_RESOLVE_MS = 1000

_OPTIONS = (
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    ("grpc.http2.max_pings_without_data", 0),
    # The timeout of any ping. While gRPC waits for a ping of its own, it sends none for keepalive,
    # and the default timeout of its own is a minute.
    ("grpc.http2.ping_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    ("grpc.initial_reconnect_backoff_ms", _RETRY_FIRST_MS),
    ("grpc.max_reconnect_backoff_ms", _RETRY_LAST_MS),
    ("grpc.min_reconnect_backoff_ms", _CONNECT_MS),
    ("grpc.dns_min_time_between_resolutions_ms", _RESOLVE_MS),
    # A new channel makes a new connection, and so chooses again among a name's addresses.
    ("grpc.use_local_subchannel_pool", 1),
    (
        "grpc.service_config",
        json.dumps({"loadBalancingConfig": [{"pick_first": {"shuffleAddressList": True}}]}),
    ),
)

_ADDRESS = re.compile(r"(dns:///|dns:|ipv4:|ipv6:)?(\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9._-]+):(\d{1,5})")
_UNIX = re.compile(r"unix(-abstract)?:\S+")


def parse_addresses(addresses: str | Sequence[str]) -> list[str]:
    """Returns the addresses of equivalent servers: "host:port", "a:1,b:2" or a list of these.

    Raises:
        ValueError: there is no address, or one is malformed.
    """
    listed = [addresses] if isinstance(addresses, str) else list(addresses)
    found = [part.strip() for each in listed for part in each.split(",") if part.strip()]
    if not found:
        raise ValueError("addresses: must name at least one server, such as 127.0.0.1:7720")
    for address in found:
        match = _ADDRESS.fullmatch(address)
        if not (_UNIX.fullmatch(address) or (match and 0 < int(match[3]) <= 65535)):
            raise ValueError(
                f"addresses: {address!r} must be host:port, [IPv6]:port or dns:///host:port"
            )
    return found


def is_loopback(address: str) -> bool:
    """Whether the address is clearly on this machine."""
    match = _ADDRESS.fullmatch(address)
    if match is None:
        return True  # a Unix socket
    host = match[2].strip("[]").partition("%")[0]
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


@dataclass(slots=True, eq=False)
class Lease:
    """A channel, and how many streams use it."""

    address: str
    channel: grpc.aio.Channel
    files: TlsFiles | None
    streams: int = 0
    stale: bool = False


class Channels:
    """Channels by address, each shared by up to `streams_each` streams.

    Every node or session has its own, unless it is given a shared one: `Node(channels=...)`,
    `Session(channels=...)`. Nodes and sessions that share channels must run in the same event loop
    and use the same TLS.

    Args:
        tls: None for plain text.
        streams_each: the number of streams after which another connection is opened.
    """

    def __init__(
        self,
        *,
        tls: Tls | None = None,
        streams_each: int = STREAMS_EACH,
    ) -> None:
        self.tls = tls
        self._streams_each = streams_each
        self._open: list[Lease] = []

    async def take(self, address: str) -> Lease:
        """Returns a channel for one more stream; return it with `release`.

        Channels whose certificates have since changed get no more streams.

        Raises:
            ValueError: a file of `tls` cannot be read.
        """
        files = None if self.tls is None else self.tls.read()
        for lease in self._open:
            lease.stale = lease.stale or lease.files != files
        for lease in self._open:
            if lease.address == address and not lease.stale and lease.streams < self._streams_each:
                break
        else:
            lease = Lease(address, self._channel(address, files), files)
            self._open.append(lease)
        lease.streams += 1
        await self._close_unused()
        return lease

    async def release(self, lease: Lease, *, renew: bool = False) -> None:
        """Returns a channel whose stream has ended.

        Args:
            lease: from `take`.
            renew: the server behind this channel is going away: new streams get a new channel.
        """
        lease.streams -= 1
        lease.stale = lease.stale or renew
        await self._close_unused()

    async def close(self) -> None:
        """Closes all channels."""
        leases, self._open = self._open, []
        for lease in leases:
            await lease.channel.close()

    async def _close_unused(self) -> None:
        unused = [lease for lease in self._open if lease.stale and lease.streams == 0]
        self._open = [lease for lease in self._open if lease not in unused]
        for lease in unused:
            await lease.channel.close()

    def _channel(self, address: str, files: TlsFiles | None) -> grpc.aio.Channel:
        if self.tls is None or files is None:
            return grpc.aio.insecure_channel(address, options=_OPTIONS)
        options = (*_OPTIONS, *self.tls.options())
        return grpc.aio.secure_channel(address, files.credentials(), options=options)
