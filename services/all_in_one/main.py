"""The process that hosts the pool service, the dispatcher and the session gateway."""

from lingua_scheduler.services.dispatcher.main import DISPATCHER
from lingua_scheduler.services.pool_service.main import POOL
from lingua_scheduler.services.runtime.service_process import Ready, run_services
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.services.session_gateway.main import GATEWAY


async def serve(settings: Settings, ready: Ready) -> None:
    """Runs all services until they are told to stop; see `run_services`."""
    await run_services(settings, (POOL, DISPATCHER, GATEWAY), ready)
