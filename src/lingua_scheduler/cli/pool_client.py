"""The pool service as the commands use it: one method a question, failures in words."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import grpc

from lingua_scheduler.cli.failures import FAILED, NOT_FOUND, UNREACHABLE, USAGE, Failure
from lingua_scheduler.cli.options import Options
from lingua_scheduler.services.runtime.errors import from_rpc_error, reason_name
from lingua_scheduler.services.runtime.settings import load_settings
from lingua_scheduler.v1 import common_pb2, pool_pb2, pool_pb2_grpc

# A page of this size takes the service some milliseconds.
_PAGE = 500

_UNREACHABLE_CODES = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
_HOW = "Is it running? Start it with 'lingua up', or set LINGUA_POOL_ADDRESS or --pool"

Request = TypeVar("Request")
Response = TypeVar("Response")


class PoolClient:
    """Calls the pool service.

    Args:
        channel: to the service; its owner closes it.
        address: of the service, for messages.
        timeout_s: of each call.

    Every method raises Failure.
    """

    def __init__(self, channel: grpc.Channel, *, address: str, timeout_s: float) -> None:
        self._stub = pool_pb2_grpc.PoolServiceStub(channel)
        self._address = address
        self._timeout_s = timeout_s

    def list_nodes(
        self,
        health: common_pb2.NodeHealth.ValueType = common_pb2.NODE_HEALTH_UNSPECIFIED,
        pair: common_pb2.LanguagePair | None = None,
    ) -> pool_pb2.ListNodesResponse:
        """All pages as one, each node once, by id."""
        request = pool_pb2.ListNodesRequest(health=health, pair=pair, page_size=_PAGE)
        nodes: dict[str, pool_pb2.Node] = {}
        while True:
            page = self._call(self._stub.ListNodes, request)
            nodes.update((node.node_id, node) for node in page.nodes)
            if not page.next_page_token:
                return pool_pb2.ListNodesResponse(nodes=[nodes[key] for key in sorted(nodes)])
            request.page_token = page.next_page_token

    def get_node(self, node_id: str) -> pool_pb2.GetNodeResponse:
        """One node with its capabilities and leases."""
        return self._call(self._stub.GetNode, pool_pb2.GetNodeRequest(node_id=node_id))

    def set_node_health(
        self, node_id: str, health: common_pb2.NodeHealth.ValueType
    ) -> pool_pb2.SetNodeHealthResponse:
        """An operator's wish: DRAINING, or READY to take it back."""
        request = pool_pb2.SetNodeHealthRequest(node_id=node_id, health=health, by_operator=True)
        return self._call(self._stub.SetNodeHealth, request)

    def remove_node(self, node_id: str) -> pool_pb2.RemoveNodeResponse:
        """Forgets a node; one that is not known is a Failure, for it may be a slip of the pen."""
        response = self._call(self._stub.RemoveNode, pool_pb2.RemoveNodeRequest(node_id=node_id))
        if not response.removed:
            raise _not_found(f"there is no node {node_id!r}")
        return response

    def list_pools(self, src: str, tgt: str, text: bool) -> pool_pb2.ListPoolsResponse:
        """The pools of the directions asked for."""
        request = pool_pb2.ListPoolsRequest(src=src, tgt=tgt, text=text)
        return self._call(self._stub.ListPools, request)

    def _call(
        self, method: "grpc.UnaryUnaryMultiCallable[Request, Response]", request: Request
    ) -> Response:
        try:
            return method(request, timeout=self._timeout_s)
        except grpc.RpcError as error:
            raise self._failure(error) from error

    def _failure(self, error: grpc.RpcError) -> Failure:
        code: grpc.StatusCode = getattr(error, "code", lambda: grpc.StatusCode.UNKNOWN)()
        said = from_rpc_error(error)
        if said is None:
            return self._unsaid(code, str(getattr(error, "details", lambda: "")() or ""))
        if said.reason == common_pb2.ERROR_REASON_NODE_NOT_FOUND:
            return _not_found(said.message)
        message = said.message
        if said.reason == common_pb2.ERROR_REASON_SCHEDULER_DEPENDENCY_DOWN:
            message = (
                f"the pool service at {self._address} answers, but its Redis does not: {message}. "
                "It recovers by itself when Redis is back"
            )
        exit_code = FAILED
        if code in _UNREACHABLE_CODES:
            exit_code = UNREACHABLE
        elif said.reason == common_pb2.ERROR_REASON_INVALID_MESSAGE:
            exit_code = USAGE
        return Failure(message, reason=reason_name(said.reason), exit_code=exit_code)

    def _unsaid(self, code: grpc.StatusCode, details: str) -> Failure:
        """A failure of which no service of ours has said anything."""
        if code is grpc.StatusCode.UNAVAILABLE:
            message = f"cannot reach the pool service at {self._address}: {_gist(details)}. {_HOW}"
        elif code is grpc.StatusCode.DEADLINE_EXCEEDED:
            message = (
                f"no answer from the pool service at {self._address} within "
                f"{self._timeout_s:g} s. {_HOW}; --timeout gives it more time"
            )
        elif code is grpc.StatusCode.UNIMPLEMENTED:
            message = (
                f"what listens at {self._address} is no pool service, or one of another version. "
                "Set LINGUA_POOL_ADDRESS or --pool"
            )
        else:
            message = f"the call to {self._address} failed with {code.name}: {details}"
        exit_code = UNREACHABLE if code in _UNREACHABLE_CODES else FAILED
        return Failure(message, reason=code.name, exit_code=exit_code)


@contextmanager
def pool_client(options: Options) -> Iterator[PoolClient]:
    """A client for the address that the options or else the settings name."""
    address = options.pool or load_settings().pool_address
    open_channel: Callable[[str], grpc.Channel] = options.connect or connect
    with open_channel(address) as channel:
        yield PoolClient(channel, address=address, timeout_s=options.timeout_s)


def connect(address: str) -> grpc.Channel:
    """A channel to a service of this project. Proxies are for the web, not for these calls."""
    options = [("grpc.enable_http_proxy", 0), ("grpc.max_receive_message_length", -1)]
    return grpc.insecure_channel(address, options=options)


def _not_found(message: str) -> Failure:
    return Failure(
        f"{message}; 'lingua nodes list' shows those that exist",
        reason="NODE_NOT_FOUND",
        exit_code=NOT_FOUND,
    )


def _gist(details: str) -> str:
    """The system's own words, out of gRPC's."""
    found = re.search(
        r"(connection refused|no route to host|network is unreachable)", details, re.I
    )
    if found:
        return found[1].lower()
    if re.search(r"\bdns\b|resolv|lookup", details, re.I):
        return "its host name cannot be resolved"
    return details or "no reason given"
