"""Channels from one service to another."""

import grpc

from lingua_scheduler.services.runtime.settings import Settings

ChannelOptions = tuple[tuple[str, str | int], ...]
Metadata = tuple[tuple[str, str], ...]

_ROUND_ROBIN = '{"loadBalancingConfig": [{"round_robin": {}}]}'


def channel_target(address: str) -> str:
    """An address of the settings as gRPC writes it: several become one target."""
    return f"ipv4:{address}" if "," in address else address


def channel_options(settings: Settings) -> ChannelOptions:
    """What every channel has: size limits, pings that notice a dead peer, quick reconnects."""
    return (
        ("grpc.max_receive_message_length", settings.max_message_bytes),
        ("grpc.max_send_message_length", settings.max_message_bytes),
        ("grpc.keepalive_time_ms", settings.keepalive_time_ms),
        ("grpc.keepalive_timeout_ms", settings.keepalive_timeout_ms),
        ("grpc.keepalive_permit_without_calls", 1),
        # 0: a stream on which nothing is sent is pinged as long as it lives.
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.service_config", _ROUND_ROBIN),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 1000),
        ("grpc.max_reconnect_backoff_ms", 1000),
        # gRPC's own 30 s would keep a client from the replacement of an instance for as long.
        ("grpc.dns_min_time_between_resolutions_ms", 1000),
        # Clients of one process would share a connection, and its backoff.
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.primary_user_agent", f"lingua/{settings.instance_id}"),
    )


class Lines:
    """How this process calls other services: with which certificates, and as whom."""

    def __init__(self, settings: Settings) -> None:
        self._options = channel_options(settings)

    def channel(self, address: str) -> grpc.aio.Channel:
        """A new channel, which looks up names and reads certificates anew."""
        return grpc.aio.insecure_channel(channel_target(address), options=self._options)

    def metadata(self) -> Metadata:
        """What every call carries: who calls."""
        return ()


def in_words(error: BaseException) -> str:
    """Why another service could not be used."""
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name} {error.details()}"
    return str(error) or type(error).__name__
