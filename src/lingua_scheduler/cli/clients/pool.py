"""The pool service as the commands use it: one method per call."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from functools import cached_property

from lingua_scheduler.cli.clients.service import ServiceClient, not_found
from lingua_scheduler.cli.failures import NOT_FOUND, Failure
from lingua_scheduler.services.runtime.errors import reason_name
from lingua_scheduler.v1 import common_pb2, instances_pb2, pool_pb2, pool_pb2_grpc

# A page of this size takes the service a few milliseconds.
_PAGE = 500
# All directions among a hundred languages.
MAX_POOLS = 10_000


class PoolClient(ServiceClient):
    """Calls the pool service."""

    service = "pool"
    words = "pool service"

    @cached_property
    def _stub(self) -> pool_pb2_grpc.PoolServiceStub:
        return pool_pb2_grpc.PoolServiceStub(self._channel)

    def list_nodes(
        self,
        health: common_pb2.NodeHealth.ValueType = common_pb2.NODE_HEALTH_UNSPECIFIED,
        pair: common_pb2.LanguagePair | None = None,
    ) -> pool_pb2.ListNodesResponse:
        """All pages as one response, without duplicates, sorted by id."""
        request = pool_pb2.ListNodesRequest(health=health, pair=pair, page_size=_PAGE)
        nodes: dict[str, pool_pb2.Node] = {}
        for page in self._pages(self._stub.ListNodes, request):
            nodes.update((node.node_id, node) for node in page.nodes)
        return pool_pb2.ListNodesResponse(nodes=[nodes[key] for key in sorted(nodes)])

    def get_node(self, node_id: str) -> pool_pb2.GetNodeResponse:
        """One node with its capabilities and leases."""
        with self._nearest(node_id):
            return self._call(self._stub.GetNode, pool_pb2.GetNodeRequest(node_id=node_id))

    def set_node_health(
        self, node_id: str, health: common_pb2.NodeHealth.ValueType
    ) -> pool_pb2.SetNodeHealthResponse:
        """Drain a node as an operator (DRAINING), or end that (READY)."""
        request = pool_pb2.SetNodeHealthRequest(node_id=node_id, health=health, by_operator=True)
        with self._nearest(node_id):
            return self._call(self._stub.SetNodeHealth, request)

    def remove_node(self, node_id: str) -> pool_pb2.RemoveNodeResponse:
        """Remove a node. An unknown node is a Failure, since its id may be mistyped."""
        request = pool_pb2.RemoveNodeRequest(node_id=node_id)
        with self._nearest(node_id):
            response = self._call(self._stub.RemoveNode, request)
            if not response.removed:
                reason = common_pb2.ERROR_REASON_NODE_NOT_FOUND
                raise not_found(reason, f"there is no node {node_id!r}")
        return response

    @contextmanager
    def _nearest(self, node_id: str) -> Iterator[None]:
        """Tells a person at a terminal which ids are like the one that does not exist."""
        try:
            yield
        except Failure as failure:
            if failure.exit_code == NOT_FOUND and sys.stderr.isatty():
                with suppress(Failure):
                    ids = [node.node_id for node in self.list_nodes().nodes]
                    if found := get_close_matches(node_id, ids):
                        failure.tip = f"did you mean {' or '.join(found)}?"
            raise

    def list_instances(self, *, with_settings: bool) -> instances_pb2.ListInstancesResponse:
        """The instances of all services, ordered by service and id."""
        request = instances_pb2.ListInstancesRequest(with_settings=with_settings)
        return self._call(self._stub.ListInstances, request)

    def list_cells(self) -> pool_pb2.ListCellsResponse:
        """All cells, ordered by number."""
        return self._call(self._stub.ListCells, pool_pb2.ListCellsRequest())

    def set_cell_state(
        self, number: int, state: pool_pb2.CellState.ValueType
    ) -> pool_pb2.SetCellStateResponse:
        """Drain a cell (DRAINING), or make it ready (READY)."""
        request = pool_pb2.SetCellStateRequest(number=number, state=state)
        return self._call(self._stub.SetCellState, request)

    def has_node_for(self, src: str, tgt: str, *, speech: bool) -> bool:
        """Whether any known node can do this direction, even if it has no room now."""
        pair = common_pb2.LanguagePair(src=src, tgt=tgt)
        criteria = pool_pb2.NodeCriteria(pair=pair, require_tts=speech)
        try:
            self._call(self._stub.SelectNode, pool_pb2.SelectNodeRequest(criteria=criteria))
        except Failure as failure:
            if failure.reason == reason_name(common_pb2.ERROR_REASON_NO_CAPABLE_NODE):
                return False
            if failure.reason != reason_name(common_pb2.ERROR_REASON_ALL_CANDIDATES_FULL_OR_FAILED):
                raise
        return True

    def list_pools(self, src: str, tgt: str, text: bool) -> tuple[list[pool_pb2.Pool], bool]:
        """Up to `MAX_POOLS` pools, sorted by source and target, and whether there may be more."""
        request = pool_pb2.ListPoolsRequest(src=src, tgt=tgt, text=text, page_size=_PAGE)
        found: dict[tuple[str, str], pool_pb2.Pool] = {}
        more = False
        for page in self._pages(self._stub.ListPools, request):
            found.update(((pool.pair.src, pool.pair.tgt), pool) for pool in page.pools)
            if len(found) >= MAX_POOLS:
                more = len(found) > MAX_POOLS or bool(page.next_page_token)
                break
        return [found[pair] for pair in sorted(found)[:MAX_POOLS]], more
