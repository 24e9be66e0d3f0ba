"""Settings of the network: addresses, and how gRPC uses connections."""

import ipaddress
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel

from lingua_scheduler.services.runtime.addresses import split_address
from lingua_scheduler.services.runtime.settings.field_types import HOUR_MS, field, whole


def _listen(value: str) -> str:
    split_address(value)
    return value


def _listen_or_off(value: str) -> str:
    return _listen(value) if value else value


def _target(value: str) -> str:
    if split_address(value.removeprefix("dns:///"))[1] == 0:
        raise ValueError
    return value


def _targets(value: str) -> str:
    if "," not in value:
        return _target(value)
    for each in value.split(","):
        # gRPC accepts a list of addresses, but not of names.
        ipaddress.IPv4Address(split_address(_target(each))[0])
    return value


def _target_or_bound(value: str) -> str:
    return _target(value) if value else value


Listen = Annotated[str, AfterValidator(_listen)]
ListenOrOff = Annotated[str, AfterValidator(_listen_or_off)]
Targets = Annotated[str, AfterValidator(_targets)]
TargetOrBound = Annotated[str, AfterValidator(_target_or_bound)]


def _listens(default: str, description: str) -> Any:
    return field(default, description, "must be host:port or [IPv6]:port (port 0: any free one)")


def listens_or_off(default: str, description: str) -> Any:
    """An address to listen at, which may be empty."""
    allowed = "must be host:port or [IPv6]:port (port 0: any free one), or empty for off"
    return field(default, description, allowed)


def _finds(default: str, description: str) -> Any:
    allowed = (
        "must be host:port, [IPv6]:port or dns:///host:port, with a port from 1 to 65535, or "
        "several IPv4 addresses with commas between"
    )
    return field(default, description, allowed)


class AddressFields(BaseModel):
    """Where servers listen, and where clients find them."""

    pool_listen: Listen = _listens("127.0.0.1:7710", "where the pool service listens")
    dispatcher_listen: Listen = _listens("127.0.0.1:7720", "where the dispatcher listens")
    gateway_listen: Listen = _listens("127.0.0.1:7730", "where the session gateway listens")
    gateway_web_listen: ListenOrOff = listens_or_off(
        "127.0.0.1:7740", "where the session gateway serves WebSockets and HTTP (empty: off)"
    )
    pool_metrics_listen: ListenOrOff = listens_or_off(
        "127.0.0.1:9710", "HTTP address of the pool service's /metrics (empty: off)"
    )
    dispatcher_metrics_listen: ListenOrOff = listens_or_off(
        "127.0.0.1:9720", "HTTP address of the dispatcher's /metrics (empty: off)"
    )
    gateway_metrics_listen: ListenOrOff = listens_or_off(
        "127.0.0.1:9730", "HTTP address of the session gateway's /metrics (empty: off)"
    )
    pool_health_listen: ListenOrOff = listens_or_off(
        "", "plain-text gRPC address of the pool service for probes only (empty: off)"
    )
    dispatcher_health_listen: ListenOrOff = listens_or_off(
        "", "plain-text gRPC address of the dispatcher for probes only (empty: off)"
    )
    gateway_health_listen: ListenOrOff = listens_or_off(
        "", "plain-text gRPC address of the session gateway for probes only (empty: off)"
    )
    pool_address: Targets = _finds(
        "127.0.0.1:7710",
        "where clients and dispatchers find the pool service; `serve all` does without",
    )
    dispatcher_address: Targets = _finds(
        "127.0.0.1:7720", "where clients and gateways find the dispatcher; `serve all` does without"
    )
    dispatcher_advertise: TargetOrBound = field(
        "",
        "where other dispatchers reach this one (empty: the address that it listens on, with the "
        "name of this machine for 0.0.0.0 and [::])",
        "must be host:port with a port from 1 to 65535, or empty",
    )
    gateway_address: Targets = _finds("127.0.0.1:7730", "where clients find the session gateway")


class GrpcFields(BaseModel):
    """Messages, connections and the drain of gRPC servers."""

    max_message_bytes: int = whole(
        4_194_304, 65_536, 268_435_456, "size limit of a message in bytes"
    )
    max_streams_per_connection: int = whole(256, 1, 100_000, "concurrent calls per connection")
    keepalive_time_ms: int = whole(
        20_000, 1000, HOUR_MS, "ms of silence after which a connection is pinged"
    )
    keepalive_timeout_ms: int = whole(
        5000, 100, 60_000, "ms after which an unanswered ping closes the connection"
    )
    peer_silence_ms: int = whole(
        3000,
        300,
        600_000,
        "ms after which a silent stream to another service is replaced; clients and nodes get "
        "the same limit for gateways and dispatchers",
    )
    drain_grace_ms: int = whole(
        20_000, 0, 600_000, "ms that calls in flight have to finish after SIGTERM"
    )
    channel_renew_ms: int = whole(
        300_000,
        0,
        24 * HOUR_MS,
        "ms after which a connection to another service is renewed, to find added instances "
        "and use new certificates (0: never)",
    )
