"""Channels from one service to another, and calls on them."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, cast
from weakref import WeakKeyDictionary

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message_factory import GetMessageClass

from lingua_scheduler.services.runtime.auth.own_token import OwnToken
from lingua_scheduler.services.runtime.auth.principals import Role
from lingua_scheduler.services.runtime.rpc.in_process.call import Identity
from lingua_scheduler.services.runtime.rpc.in_process.server import InProcessServer
from lingua_scheduler.services.runtime.rpc.message_sizes import between_services
from lingua_scheduler.services.runtime.settings.settings import Settings

ChannelOptions = tuple[tuple[str, str | int], ...]
Metadata = tuple[tuple[str, str], ...]

_ROUND_ROBIN = '{"loadBalancingConfig": [{"round_robin": {}}]}'


def channel_target(address: str) -> str:
    """Converts an address of the settings to a gRPC target; several addresses become one target."""
    return f"ipv4:{address}" if "," in address else address


def channel_options(settings: Settings) -> ChannelOptions:
    """Options of every channel: size limits, pings that notice a dead peer, quick reconnects."""
    return (
        ("grpc.max_receive_message_length", between_services(settings.max_message_bytes)),
        ("grpc.max_send_message_length", settings.max_message_bytes),
        ("grpc.keepalive_time_ms", settings.keepalive_time_ms),
        ("grpc.keepalive_timeout_ms", settings.keepalive_timeout_ms),
        ("grpc.keepalive_permit_without_calls", 1),
        # 0: an idle stream is pinged for as long as it lives.
        ("grpc.http2.max_pings_without_data", 0),
        # Applies to any ping. While gRPC waits for the answer to one of its own, for up to a minute
        # by default, it sends none for keepalive.
        ("grpc.http2.ping_timeout_ms", settings.keepalive_timeout_ms),
        ("grpc.service_config", _ROUND_ROBIN),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 1000),
        ("grpc.max_reconnect_backoff_ms", 1000),
        # With gRPC's default of 30 s a client would not find the replacement of an instance sooner.
        ("grpc.dns_min_time_between_resolutions_ms", 1000),
        # Otherwise clients of one process share a connection, and its backoff.
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.primary_user_agent", f"lingua/{settings.instance_id}"),
    )


def open_stream(
    channel: grpc.aio.Channel, method: MethodDescriptor, metadata: Metadata
) -> grpc.aio.StreamStreamCall[bytes, Any]:
    """Calls a method that streams both ways. The caller serializes the requests."""
    call: Any = channel.stream_stream(
        _path(method),
        request_serializer=None,
        response_deserializer=GetMessageClass(method.output_type).FromString,
    )
    return cast("grpc.aio.StreamStreamCall[bytes, Any]", call(metadata=metadata))


def unary_method(channel: grpc.aio.Channel, method: MethodDescriptor) -> Callable[..., Any]:
    """A method that has one request and one response, for one call."""
    return channel.unary_unary(
        _path(method),
        request_serializer=GetMessageClass(method.input_type).SerializeToString,
        response_deserializer=GetMessageClass(method.output_type).FromString,
    )


def _path(method: MethodDescriptor) -> str:
    return f"/{method.containing_service.full_name}/{method.name}"


class Dialer:
    """Makes channels to other services, with the certificates and the token of this process.

    Args:
        settings: have the paths of certificates and tokens.
        in_process: services of this process by address; they are called without gRPC.

    Raises:
        SettingsError: the files for TLS or tokens are not valid.
    """

    def __init__(
        self,
        settings: Settings,
        in_process: Mapping[str, InProcessServer] = MappingProxyType({}),
    ) -> None:
        # Not at the top: it is slow to import, and some commands do without it.
        from lingua_scheduler.services.runtime.rpc.tls import client_tls

        self._in_process = in_process
        self._max_response_bytes = between_services(settings.max_message_bytes)
        self._options = channel_options(settings)
        self.tls = client_tls(settings)
        # The files with which each channel was made.
        self._made_with: WeakKeyDictionary[grpc.aio.Channel, object] = WeakKeyDictionary()
        self._token: OwnToken | None = None
        if settings.auth == "on" or settings.token_file:
            self._token = OwnToken(settings, role=Role.SERVICE)

    def channel(self, address: str) -> grpc.aio.Channel:
        """Makes a channel, which resolves names and reads certificates again."""
        server = self._in_process.get(address)
        if server is not None:
            return server.channel(
                identity=self._identity, max_response_bytes=self._max_response_bytes
            )
        target = channel_target(address)
        if self.tls is None:
            return grpc.aio.insecure_channel(target, options=self._options)
        # Before the files are read: a change in between counts as a change.
        stamp = self.tls.files.stamp()
        channel = grpc.aio.secure_channel(
            target, self.tls.credentials(), options=self._options + self.tls.options
        )
        self._made_with[channel] = stamp
        return channel

    def certificates_changed(self, channel: grpc.aio.Channel) -> bool:
        """Whether the certificates have changed since this channel was made."""
        if self.tls is None or channel not in self._made_with:
            return False
        return self.tls.files.stamp() != self._made_with[channel]

    def metadata(self) -> Metadata:
        """The metadata of every call: the token of this process."""
        return self._token.metadata() if self._token is not None else ()

    def _identity(self) -> Identity:
        """What a server would read in the certificate of this process."""
        uris = self.tls.files.current().uris if self.tls is not None else ()
        return {"peer_uri": uris} if uris else {}


def in_words(error: BaseException) -> str:
    """Describes why a call failed."""
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name} {error.details()}"
    return str(error) or type(error).__name__
