"""What the HTTP server needs from the rest of the console."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol


class Documents(Protocol):
    """The documents of the API."""

    async def get(self, path: str, query: Mapping[str, str]) -> dict[str, Any]:
        """The document at `/api/v1/<path>`, such as `overview`, `nodes` or `nodes/gpu-1`.

        It contains no null, because that means "remove" in a merge patch.

        Raises:
            LinguaError: the query is not valid, what the path names does not exist, or a service
                cannot be reached.
        """


class Actions(Protocol):
    """What operators can change.

    Each takes the operator's own token, None if auth is off, so that the services decide by their
    own rules as well. All raise LinguaError.
    """

    async def drain(self, node_id: str, token: str | None) -> None:
        """Gives a node no more jobs."""

    async def ready(self, node_id: str, token: str | None) -> None:
        """Ends a drain or an ejection."""

    async def remove(self, node_id: str, token: str | None) -> None:
        """Forgets a node."""

    async def cancel(self, job_id: str, why: str, token: str | None) -> None:
        """Cancels a job."""

    async def close_room(self, room_id: str, token: str | None) -> None:
        """Ends a room."""


class Backend(Protocol):
    """All of it. The process runs it from start to end."""

    @property
    def documents(self) -> Documents:
        """What it shows."""

    @property
    def actions(self) -> Actions:
        """What it lets operators do."""

    def stale(self) -> Sequence[str]:
        """The sources that have not been read for a while, such as `jobs`."""

    async def run(self) -> None:
        """Reads the sources until cancelled."""

    async def close(self) -> None:
        """Releases its connections."""
