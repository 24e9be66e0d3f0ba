"""Reads the packed record of a node, which lua/lib/live.lua writes."""

import struct
from typing import NamedTuple

from lingua_scheduler.services.pool_service.codes import DRAINED, LEAVING
from lingua_scheduler.v1 import common_pb2

_FIXED = struct.Struct("<ddddddHHBBBBBIB")


class LiveNode(NamedTuple):
    """The frequently changing state of a node. lua/lib/live.lua describes the fields."""

    beat_ms: int
    epoch: int
    next_end_ms: float
    load: float
    ejected_until_ms: int
    used: int
    max_concurrent_jobs: int
    health: int
    drained: bool
    stages: int
    failures: int
    owner_instance: str
    owner_address: str

    @classmethod
    def unpack(cls, packed: bytes) -> "LiveNode":
        """Reads a record."""
        fields = _FIXED.unpack_from(packed)
        beat, epoch, next_end, load, ejected, _, used, most = fields[:8]
        health, drained, stages, failures, _, _, length = fields[8:]
        owner_end = _FIXED.size + length
        return cls(
            beat_ms=int(beat),
            epoch=int(epoch),
            next_end_ms=next_end,
            load=load,
            ejected_until_ms=int(ejected),
            used=used,
            max_concurrent_jobs=most,
            health=health,
            drained=drained == DRAINED,
            stages=stages,
            failures=failures,
            owner_instance=packed[_FIXED.size : owner_end].decode(),
            owner_address=packed[owner_end:].decode(),
        )

    def effective_health(self, now_ms: int, stale_ms: int) -> common_pb2.NodeHealth.ValueType:
        """Returns the worst of reported health, operator drain and missing heartbeats."""
        offline = common_pb2.NODE_HEALTH_OFFLINE
        if self.health >= LEAVING or self.health == offline or self.beat_ms <= now_ms - stale_ms:
            return offline
        if self.drained:
            return common_pb2.NODE_HEALTH_DRAINING
        return common_pb2.NodeHealth.ValueType(self.health)
