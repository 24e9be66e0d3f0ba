"""The dispatcher as a process."""

from collections.abc import Coroutine, Sequence
from typing import Any

import grpc

from lingua_scheduler.services.dispatcher.gateways.followed_jobs import FollowedJobs
from lingua_scheduler.services.dispatcher.gateways.streams import GatewayStreams
from lingua_scheduler.services.dispatcher.home.executor import Executor
from lingua_scheduler.services.dispatcher.home.job import JobRegistry
from lingua_scheduler.services.dispatcher.home.kept_results import KeptResults
from lingua_scheduler.services.dispatcher.home.records import JobRecords
from lingua_scheduler.services.dispatcher.home.submissions import Submissions
from lingua_scheduler.services.dispatcher.job_list import JobList
from lingua_scheduler.services.dispatcher.metrics import DispatcherMetrics
from lingua_scheduler.services.dispatcher.nodes.admission import Admission
from lingua_scheduler.services.dispatcher.nodes.connected import ConnectedNodes
from lingua_scheduler.services.dispatcher.nodes.heartbeats import Heartbeats
from lingua_scheduler.services.dispatcher.nodes.held_audio import HeldAudio
from lingua_scheduler.services.dispatcher.nodes.incoming import IncomingReports
from lingua_scheduler.services.dispatcher.nodes.relay_server import RelayServer
from lingua_scheduler.services.dispatcher.nodes.routes import Routes
from lingua_scheduler.services.dispatcher.nodes.streams import NodeStreams
from lingua_scheduler.services.dispatcher.pool.client import PoolClient
from lingua_scheduler.services.dispatcher.service import DispatcherServicer
from lingua_scheduler.services.dispatcher.views import JobViews
from lingua_scheduler.services.runtime.hosted_service import Runtime, ServiceKind
from lingua_scheduler.services.runtime.instances import callable_address
from lingua_scheduler.services.runtime.service_process import Ready, run_services
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.v1 import dispatcher_pb2, dispatcher_pb2_grpc, instances_pb2

# When the process ends: time to give slots back.
_SETTLE_S = 1.0


class DispatcherService:
    """Puts the parts of the dispatcher together."""

    grpc_name = dispatcher_pb2.DESCRIPTOR.services_by_name["Dispatcher"].full_name
    max_request_bytes: int | None = None
    web_address = ""

    def __init__(self, runtime: Runtime) -> None:
        settings = runtime.settings
        metrics = DispatcherMetrics(runtime.registry)
        self._settings = settings
        self._address = settings.dispatcher_advertise
        self._pool = PoolClient.from_settings(settings, runtime.dialer)
        self._pool.on_change.append(lambda up, _: metrics.pool_up.set(up))
        self._instances = runtime.instances
        kept = KeptResults(cells=runtime.cells, settings=settings)
        records = JobRecords(pool=self._pool, settings=settings)
        registry = JobRegistry(metrics)
        self._metrics = metrics
        self._registry = registry
        held = HeldAudio(settings=settings, pool=self._pool, metrics=metrics)
        self._nodes = ConnectedNodes(pool=self._pool, metrics=metrics, held=held)
        self._executor = Executor(
            settings=settings,
            registry=registry,
            pool=self._pool,
            kept=kept,
            records=records,
            metrics=metrics,
            connect=lambda responsible: Routes(
                settings=settings,
                dialer=runtime.dialer,
                pool=self._pool,
                metrics=metrics,
                nodes=self._nodes,
                responsible=responsible,
            ),
        )
        reports = self._executor.reports
        admission = Admission(
            settings=settings,
            pool=self._pool,
            address=lambda: self._address,
            nodes=self._nodes,
            on_room=self._executor.leases.on_room,
            on_connected=reports.on_connected,
            unwanted=reports.unwanted,
        )
        self._heartbeats = Heartbeats(
            settings=settings,
            pool=self._pool,
            metrics=metrics,
            nodes=self._nodes,
            admission=admission,
        )
        node_streams = NodeStreams(
            nodes=self._nodes,
            admission=admission,
            heartbeats=self._heartbeats,
            reports=IncomingReports(
                metrics=metrics, nodes=self._nodes, held=held, fallback=reports
            ),
        )
        submissions = Submissions(settings=settings, registry=registry, executor=self._executor)
        views = JobViews(cells=runtime.cells, instances=self._instances, settings=settings)
        self._followed = FollowedJobs(views=views, kept=kept)
        self._gateways = GatewayStreams(
            registry=registry,
            submissions=submissions,
            followed=self._followed,
            views=views,
            metrics=metrics,
            max_message_bytes=settings.max_message_bytes,
        )
        self._relay_server = RelayServer(
            nodes=self._nodes,
            metrics=metrics,
            max_message_bytes=settings.max_message_bytes,
            fallback=reports,
            silence_ms=settings.peer_silence_ms,
        )
        self._servicer = DispatcherServicer(
            registry=registry,
            submissions=submissions,
            nodes=node_streams,
            gateways=self._gateways,
            relays=self._relay_server,
            views=views,
            jobs=JobList(cells=runtime.cells, views=views),
            kept=kept,
            records=records,
            instances=self._instances,
            dialer=runtime.dialer,
            settings=settings,
        )

    def register(self, server: grpc.aio.Server) -> None:
        """Adds the servicer to the server."""
        dispatcher_pb2_grpc.add_DispatcherServicer_to_server(self._servicer, server)

    async def open(self, address: str) -> None:
        """Connects to the pool service, and announces the address of this instance."""
        self._address = self._settings.dispatcher_advertise or await callable_address(address)
        await self._instances.announce(self._address, self._stats)
        await self._pool.open()

    def work(self) -> Sequence[Coroutine[Any, Any, None]]:
        """Heartbeats, relays, waiting jobs, orphans, and followed jobs."""
        return (
            self._heartbeats.run(),
            self._relay_server.run(),
            self._executor.leases.poll(),
            self._executor.orphans.run(),
            self._followed.run(),
        )

    def _stats(self) -> instances_pb2.InstanceStats:
        return self._metrics.stats(
            jobs=self._registry.under_way,
            waiting=self._executor.leases.waiting,
            nodes=len(self._nodes),
        )

    async def drain(self) -> None:
        """Begins no new job, finishes those under way, then sends gateways and nodes elsewhere."""
        await self._gateways.drain()
        await self._nodes.drain()
        self._relay_server.drain()

    async def close(self) -> None:
        """Disconnects from the other services."""
        await self._executor.routes.close()
        await self._executor.close()
        await self._pool.settle(_SETTLE_S)
        await self._pool.close()


DISPATCHER = ServiceKind("dispatcher", DispatcherService)


async def serve(settings: Settings, ready: Ready) -> None:
    """Runs the dispatcher until it is told to stop; see `run_services`."""
    await run_services(settings, (DISPATCHER,), ready)
