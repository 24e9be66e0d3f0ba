"""The nodes of all cells as operators see them. Reads only."""

from collections.abc import Sequence

from lingua_scheduler.services.pool_service.fleet.cell_nodes import PAGE, CellNodes
from lingua_scheduler.services.pool_service.fleet.node_places import places_of
from lingua_scheduler.services.runtime.errors import DependencyDownError
from lingua_scheduler.services.runtime.redis.cells.cells import Cells
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.v1 import pool_pb2

# Page tokens are cursor * _CELLS + cell, if there are several cells.
_CELLS = 4096
# Steps after which a page is returned even if it is not full.
_STEPS_A_PAGE = 20


class Nodes:
    """Finds nodes, and lists them one cell after the other."""

    def __init__(self, *, cells: Cells, settings: Settings) -> None:
        self._cells = cells
        self.of_cell: Sequence[CellNodes] = [
            CellNodes(cell=cell, settings=settings) for cell in cells.all
        ]
        """Those of each cell, by its number."""

    async def get_node(self, request: pool_pb2.GetNodeRequest) -> pool_pb2.GetNodeResponse:
        """Returns one node and the attempts that hold its slots.

        Raises:
            NodeNotFoundError: there is no node with this id.
        """
        cell = self._cells.first
        if not self._cells.one:
            cell = (await places_of(self._cells, request.node_id))[0].cell
        return await self.of_cell[cell.number].get_node(request)

    async def list_nodes(self, request: pool_pb2.ListNodesRequest) -> pool_pb2.ListNodesResponse:
        """Returns a page of nodes. Leaves out cells that are away, unless all are."""
        response = pool_pb2.ListNodesResponse()
        if self._cells.one:
            nodes, cursor = await self.of_cell[0].list_nodes(request, request.page_token or "0")
            response.nodes.extend(nodes)
            response.next_page_token = "" if cursor == "0" else cursor
            return response
        cursor, number = read_token(self._cells, request.page_token)
        for _ in range(_STEPS_A_PAGE):
            try:
                nodes, cursor = await self.of_cell[number].list_nodes(request, cursor)
            except DependencyDownError:
                if not self._cells.up:
                    raise
                cursor = "0"
            else:
                response.nodes.extend(nodes)
            if cursor == "0":
                number += 1
            if number == len(self._cells.all):
                return response
            if len(response.nodes) >= (request.page_size or PAGE):
                break
        response.next_page_token = write_token(cursor, number)
        return response


def read_token(cells: Cells, token: str) -> tuple[str, int]:
    """The cursor and the number of the cell with which a page begins.

    Raises:
        InvalidMessageError: it names a cell that does not exist.
    """
    cursor, number = divmod(int(token or "0"), _CELLS)
    return str(cursor), cells.of_number(number, "page_token").number


def write_token(cursor: str, number: int) -> str:
    """The token of a page that begins so."""
    return str(int(cursor) * _CELLS + number)
