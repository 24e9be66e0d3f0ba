"""Makes the backend of the HTTP server from the parts of the console."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry

from lingua_scheduler.services.console.http.backend import Backend
from lingua_scheduler.services.console.metrics import SOURCES, ConsoleMetrics
from lingua_scheduler.services.runtime.errors import DependencyDownError
from lingua_scheduler.services.runtime.settings.settings import Settings


class _NoSources:
    """Stands in until the pollers are connected: every document says that nothing is read."""

    def __init__(self) -> None:
        self.documents = self
        self.actions = self

    async def get(self, path: str, query: Mapping[str, str]) -> dict[str, Any]:
        raise _nothing()

    async def drain(self, node_id: str, token: str | None) -> None:
        raise _nothing()

    async def ready(self, node_id: str, token: str | None) -> None:
        raise _nothing()

    async def remove(self, node_id: str, token: str | None) -> None:
        raise _nothing()

    async def cancel(self, job_id: str, why: str, token: str | None) -> None:
        raise _nothing()

    def stale(self) -> Sequence[str]:
        return SOURCES

    async def run(self) -> None:
        await asyncio.Event().wait()

    async def close(self) -> None:
        pass


def build_backend(
    settings: Settings, registry: CollectorRegistry, metrics: ConsoleMetrics
) -> Backend:
    """The documents, actions and pollers of a console with these settings."""
    return _NoSources()


def _nothing() -> DependencyDownError:
    return DependencyDownError("this console reads nothing from the services")
