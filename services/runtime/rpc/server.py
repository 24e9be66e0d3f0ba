"""The gRPC server of every service: start, health, reflection, drain."""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import cast

import grpc
from grpc_health.v1 import health, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from opentelemetry.trace import TracerProvider
from prometheus_client import CollectorRegistry

from lingua_scheduler.services.runtime.addresses import join_address, split_address
from lingua_scheduler.services.runtime.auth.guard import Guard
from lingua_scheduler.services.runtime.auth.refusals import Refusals
from lingua_scheduler.services.runtime.errors import SettingsError
from lingua_scheduler.services.runtime.rpc.health import HealthServicer
from lingua_scheduler.services.runtime.rpc.in_process.server import InProcessServer
from lingua_scheduler.services.runtime.rpc.interceptors import CallInterceptor
from lingua_scheduler.services.runtime.rpc.message_sizes import between_services
from lingua_scheduler.services.runtime.rpc.peer_limits import MAX_OPEN_CALLS
from lingua_scheduler.services.runtime.telemetry.traces import tracer_if_on

# Clients may ping as often as the server, and somewhat more often, because clocks differ.
_PING_TOLERANCE = 2
# With gRPC's default of 2, a client that pinged slightly early would be disconnected.
_MAX_PING_STRIKES = 5
# The request of a probe is only the name of a service.
_PROBE_REQUEST_BYTES = 4096
# Half a second of speech at 16 kHz and 16 bit. gRPC renews a window when half of it is used up, so
# this is enough for round trips of a quarter of a second.
_WINDOW_BYTES_PER_STREAM = 16 * 1024
# As much as gRPC grants every stream by default.
_MAX_WINDOW_BYTES = 4 * 1024 * 1024

_log = logging.getLogger(__name__)


class GrpcServer:
    """A gRPC server with the standard health and reflection services.

    It serves from `start` to `drain`, each called once. Its health is NOT_SERVING until
    `set_serving(True)`.

    Args:
        listen: `host:port`; port 0 for any free port.
        variable: the environment variable that sets `listen`, for error messages.
        services: the full name of each service, and a function that adds its servicer.
        instance_id: names this process in responses to calls that failed internally.
        max_request_bytes: size limit of messages from callers; None for max_message_bytes.
        credentials: for TLS; None for plain text.
        probe_listen: where the health service alone listens in plain text, for probes that do not
            support TLS; empty for nowhere.
        probe_variable: the environment variable that sets `probe_listen`.
        in_process: serves the same calls to other services of this process; None if there are none.
        guard: decides who may call what; None if everyone may call everything.
        refusals: where calls that the guard refuses are counted; see CallInterceptor.
        registry: where calls are counted; None for nowhere.
        tracer_provider: makes spans; by default the one of the current service, if it traces.
    """

    def __init__(
        self,
        *,
        listen: str,
        variable: str,
        services: Sequence[tuple[str, Callable[[grpc.aio.Server], None]]],
        instance_id: str,
        max_message_bytes: int,
        max_request_bytes: int | None = None,
        max_streams_per_connection: int = 256,
        keepalive_time_ms: int,
        keepalive_timeout_ms: int,
        drain_grace_ms: int,
        credentials: grpc.ServerCredentials | None = None,
        probe_listen: str = "",
        probe_variable: str = "",
        in_process: InProcessServer | None = None,
        guard: Guard | None = None,
        refusals: Refusals | None = None,
        registry: CollectorRegistry | None = None,
        tracer_provider: TracerProvider | None = None,
    ) -> None:
        self._instance_id = instance_id
        self._listen = listen
        self._variable = variable
        self._services = services
        self._credentials = credentials
        self._probe_listen = probe_listen
        self._probe_variable = probe_variable
        self._in_process = in_process
        self._grace_s = drain_grace_ms / 1000
        self._max_request_bytes = max_request_bytes or max_message_bytes
        self._options = (
            # Otherwise two processes could listen on one port and share its calls.
            ("grpc.so_reuseport", 0),
            ("grpc.max_receive_message_length", self._max_request_bytes),
            ("grpc.max_send_message_length", between_services(max_message_bytes)),
            ("grpc.keepalive_time_ms", keepalive_time_ms),
            ("grpc.keepalive_timeout_ms", keepalive_timeout_ms),
            ("grpc.keepalive_permit_without_calls", 1),
            # 0: ping a stream on which nothing is sent for as long as it lives.
            ("grpc.http2.max_pings_without_data", 0),
            # Of any ping. While gRPC waits for another ping of its own, it sends none for
            # keepalive, and its default is a minute.
            ("grpc.http2.ping_timeout_ms", keepalive_timeout_ms),
            ("grpc.http2.min_ping_interval_without_data_ms", keepalive_time_ms // _PING_TOLERANCE),
            ("grpc.http2.max_ping_strikes", _MAX_PING_STRIKES),
            # gRPC refuses more streams at little cost.
            ("grpc.max_concurrent_streams", max_streams_per_connection),
            *_window_options(max_request_bytes, max_streams_per_connection),
        )
        self._interceptor = CallInterceptor(
            instance_id=instance_id,
            guard=guard,
            refusals=refusals,
            registry=registry,
            tracer=tracer_if_on(tracer_provider),
        )
        self._health = HealthServicer(name for name, _ in services)
        self._drain_callbacks: list[Callable[[], Awaitable[None]]] = []
        self._server: grpc.aio.Server | None = None
        self._probes: grpc.aio.Server | None = None
        self._drained: asyncio.Task[None] | None = None

    def on_drain(self, callback: Callable[[], Awaitable[None]]) -> None:
        """Registers a callback that runs when the server drains, before it stops accepting calls.

        In it, a service tells the peers of its streams to connect elsewhere, and ends the streams.
        """
        self._drain_callbacks.append(callback)

    async def start(self) -> str:
        """Starts accepting calls.

        Returns:
            The bound address, `host:port`.

        Raises:
            SettingsError: the address cannot be bound.
        """
        server = grpc.aio.server(interceptors=[self._interceptor], options=self._options)
        self._add_services(server)
        names = [name for name, _ in self._services]
        reflection.enable_server_reflection(
            [*names, health.SERVICE_NAME, reflection.SERVICE_NAME], server
        )
        address = await _bind(server, self._listen, self._variable, self._credentials)
        await server.start()
        self._server = server
        if self._in_process is not None:
            # It has what generated code needs to add a servicer.
            self._add_services(cast("grpc.aio.Server", self._in_process))
            self._in_process.start(
                interceptor=self._interceptor, max_request_bytes=self._max_request_bytes
            )
        if self._probe_listen:
            self._probes = await self._start_probes()
        return address

    def _add_services(self, server: grpc.aio.Server) -> None:
        for _, register in self._services:
            register(server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)

    async def _start_probes(self) -> grpc.aio.Server:
        server = grpc.aio.server(
            interceptors=[CallInterceptor(instance_id=self._instance_id)],
            options=(
                ("grpc.so_reuseport", 0),
                ("grpc.max_receive_message_length", _PROBE_REQUEST_BYTES),
                ("grpc.max_concurrent_streams", MAX_OPEN_CALLS),
            ),
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        address = await _bind(server, self._probe_listen, self._probe_variable, None)
        await server.start()
        _log.info("listening for probes", extra={"address": address})
        return server

    def set_serving(self, serving: bool) -> None:
        """Sets the health of the server and all its services."""
        self._health.set_serving(serving)

    def leave(self) -> None:
        """Sets the health to NOT_SERVING for good, because a drain follows."""
        self._health.close()

    async def drain(self, end: float | None = None) -> None:
        """Ends the server; returns when it has ended, at the latest after the grace period.

        The health becomes NOT_SERVING, then the drain callbacks run, then new calls are refused and
        calls in flight may finish. Repeated calls wait for the same end.

        Args:
            end: when the grace period is over, by the clock of the event loop; by default, it
                begins now.
        """
        if self._drained is None:
            self._drained = asyncio.create_task(self._drain(end))
        await asyncio.shield(self._drained)

    async def _drain(self, end: float | None) -> None:
        self.leave()
        if self._server is None:
            return
        loop = asyncio.get_running_loop()
        if end is None:
            end = loop.time() + self._grace_s
        try:
            async with asyncio.timeout_at(end):
                for callback in self._drain_callbacks:
                    await _run_callback(callback)
        except TimeoutError:
            _log.warning("drain incomplete", extra={"grace_s": self._grace_s})
        grace_s = max(0.0, end - loop.time())
        if self._in_process is None:
            await self._server.stop(grace_s)
        else:
            await asyncio.gather(self._server.stop(grace_s), self._in_process.stop(grace_s))
        if self._probes is not None:
            await self._probes.stop(0)


def _window_options(max_request_bytes: int | None, max_streams: int) -> tuple[tuple[str, int], ...]:
    """Flow control for callers that send small messages; gRPC's own for all others (decision 42).

    By default, gRPC measures each connection with pings, whose timers wake threads while somebody
    speaks, and grants a fast sender ever larger windows. A fixed window limits what a connection
    can make this process buffer to one window per stream. The same number is the window of the
    whole connection, so it has to hold what all its streams send during a round trip.
    """
    if max_request_bytes is None:
        return ()
    shared = min(max_streams * _WINDOW_BYTES_PER_STREAM, _MAX_WINDOW_BYTES)
    window = max(max_request_bytes, shared)
    return (("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", window))


async def _run_callback(callback: Callable[[], Awaitable[None]]) -> None:
    try:
        await callback()
    except Exception:
        # One callback that fails must not stop the drain.
        _log.exception("drain callback failed")


async def _bind(
    server: grpc.aio.Server, listen: str, variable: str, credentials: grpc.ServerCredentials | None
) -> str:
    """Binds the server. Returns the bound address."""
    try:
        if credentials is None:
            port = server.add_insecure_port(listen)
        else:
            port = server.add_secure_port(listen, credentials)
    except RuntimeError:
        why = await asyncio.to_thread(_why_no_bind, listen)
        raise SettingsError(f"{variable}={listen!r}: cannot listen there: {why}") from None
    return join_address(split_address(listen)[0], port)


def _why_no_bind(address: str) -> str:
    """The error of the operating system, which gRPC does not report."""
    host, port = split_address(address)
    try:
        family, kind, protocol, _, target = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[
            0
        ]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(target)
            probe.listen()
    except OSError as error:
        return error.strerror or str(error)
    return "gRPC could not bind to it"
