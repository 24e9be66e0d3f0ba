"""Packed records of nodes, as lua/lib/live.lua writes them."""

import struct

from lingua_scheduler.v1 import common_pb2

_FIXED = struct.Struct("<ddddddHHBBBBBIB")


def live_record(
    *,
    beat: float = 0.0,
    epoch: int = 1,
    next_end: float = float("inf"),
    load: float = 0.0,
    ejected: float = 0.0,
    used: int = 0,
    most: int = 4,
    health: int = common_pb2.NODE_HEALTH_READY,
    drained: bool = False,
    stages: int = 15,
    failures: int = 0,
    owner: str = "dispatcher-0",
    address: str = "127.0.0.1:7720",
) -> bytes:
    """The record of an idle node, unless told otherwise."""
    fixed = _FIXED.pack(
        *(beat, epoch, next_end, load, ejected, 0.0, used, most),
        *(health, drained, stages, failures, 0, 0, len(owner)),
    )
    return fixed + owner.encode() + address.encode()
