"""The cells of the deployment, read while somebody asks for them."""

from collections.abc import Sequence

from lingua_scheduler.services.console.services.calls import ServiceCalls
from lingua_scheduler.services.console.services.kept import Kept
from lingua_scheduler.services.runtime.errors import LinguaError
from lingua_scheduler.v1 import pool_pb2

# The pool service counts all nodes for the list.
_KEEP_S = 5.0
_ALL = ""


class CellReads:
    """Reads the list of cells.

    Args:
        calls: makes the calls.
    """

    def __init__(self, *, calls: ServiceCalls) -> None:
        self._calls = calls
        self._cells = Kept(self._list, keep_s=lambda _: _KEEP_S, most=1)

    async def list(self) -> Sequence[pool_pb2.Cell]:
        """All cells; none if the pool service does not answer, which others report."""
        try:
            return await self._cells.get(_ALL)
        except LinguaError:
            return ()

    async def _list(self, _: str) -> Sequence[pool_pb2.Cell]:
        response = await self._calls.call("pool", "ListCells", pool_pb2.ListCellsRequest())
        cells: Sequence[pool_pb2.Cell] = response.cells
        return cells
