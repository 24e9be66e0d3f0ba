"""The documents of the API by path."""

from collections.abc import Mapping
from typing import Any

from lingua_scheduler.services.console.documents.instances import OwnInstance, instances
from lingua_scheduler.services.console.documents.jobs import job, jobs
from lingua_scheduler.services.console.documents.nodes import node, nodes
from lingua_scheduler.services.console.documents.overview import overview
from lingua_scheduler.services.console.documents.query import Query
from lingua_scheduler.services.console.documents.rooms import room, rooms
from lingua_scheduler.services.console.documents.search import search
from lingua_scheduler.services.console.documents.sessions import session, sessions
from lingua_scheduler.services.console.services.sources import Sources
from lingua_scheduler.services.runtime.contract.text_formats import shown
from lingua_scheduler.services.runtime.errors import InvalidMessageError

PATHS = ("overview", "nodes", "jobs", "sessions", "rooms", "instances", "search")


class Documents:
    """Makes documents of what the sources know.

    Args:
        sources: have the store, and read what it does not have.
        trace_template: address of a trace, with {trace_id} in it; "": jobs have no such address.
        own: makes the instance of the console itself; None: it is not listed.
    """

    def __init__(
        self, sources: Sources, *, trace_template: str = "", own: OwnInstance | None = None
    ) -> None:
        self._sources = sources
        self._trace_template = trace_template
        self._own = own

    async def get(self, path: str, query: Mapping[str, str]) -> dict[str, Any]:
        """The document at /api/v1/<path>, such as "overview", "nodes" or "nodes/gpu-1".

        Raises:
            LinguaError: InvalidMessageError with fields for a bad query or path; NodeNotFoundError,
                JobNotFoundError, SessionNotFoundError, RoomNotFoundError; DependencyDownError.
        """
        kind, has_id, name = path.partition("/")
        document = await self._make(kind, name if has_id else None, Query(query))
        # Last, so that a problem that was just found is told.
        return {**document, "problems": self._sources.problems.document()}

    async def _make(self, kind: str, name: str | None, query: Query) -> dict[str, Any]:
        sources = self._sources
        match kind, name:
            case "overview", None:
                return overview(sources, query)
            case "nodes", None:
                return nodes(sources, query)
            case "nodes", str(node_id):
                return await node(sources, node_id, query)
            case "jobs", None:
                return jobs(sources, query)
            case "jobs", str(job_id):
                return await job(sources, job_id, query, self._trace_template)
            case "sessions", None:
                return await sessions(sources, query)
            case "sessions", str(session_id):
                return await session(sources, session_id, query)
            case "rooms", None:
                return await rooms(sources, query)
            case "rooms", str(room_id):
                return await room(sources, room_id, query)
            case "instances", None:
                return await instances(sources, query, self._own)
            case "search", None:
                return await search(sources, query)
        raise InvalidMessageError(
            f"there is no document {shown(kind)}", fields=[("path", "is not known")]
        )
