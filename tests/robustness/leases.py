"""The slots that are in use, as a pool service sees them."""

import asyncio
import contextlib
import time

import grpc

from lingua_scheduler.v1 import pool_pb2, pool_pb2_grpc


async def known_nodes(address: str) -> list[pool_pb2.Node]:
    """All nodes that the pool service at an address knows."""
    async with grpc.aio.insecure_channel(address) as channel:
        stub = pool_pb2_grpc.PoolServiceStub(channel)
        nodes: list[pool_pb2.Node] = []
        request = pool_pb2.ListNodesRequest()
        while True:
            listed = await stub.ListNodes(request, timeout=5)
            nodes += listed.nodes
            if not listed.next_page_token:
                return nodes
            request.page_token = listed.next_page_token


async def leases_left(address: str, within: float) -> list[str]:
    """Waits until no slot is in use; returns what still is after `within` seconds."""
    deadline = time.monotonic() + within
    while True:
        left = ["the pool service does not answer"]
        with contextlib.suppress(grpc.aio.AioRpcError):
            left = [
                f"{node.node_id}: {node.reserved} reserved, {node.running} running"
                for node in await known_nodes(address)
                if node.reserved + node.running
            ]
        if not left or time.monotonic() > deadline:
            return left
        await asyncio.sleep(0.1)
