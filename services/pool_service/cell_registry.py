"""Registration and removal of nodes in one cell.

In several script calls, because of thousands of pools.
"""

import json
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from lingua_scheduler.services.pool_service import codes
from lingua_scheduler.services.pool_service.refusals import refusal
from lingua_scheduler.services.runtime.contract.capabilities import Capabilities
from lingua_scheduler.services.runtime.redis import script_calls
from lingua_scheduler.services.runtime.redis.cells.cells import Cell
from lingua_scheduler.services.runtime.settings.settings import Settings
from lingua_scheduler.v1 import common_pb2, pool_pb2

# Pools that one script call joins or leaves. Each takes 3 to 6 Redis commands, so a step takes
# about a millisecond and does not block other calls.
POOLS_A_STEP = 200

_OK = b"ok"


class Before(NamedTuple):
    """What a node was in the cell that it comes from.

    Attributes:
        epoch: its last one there; 0: it comes from none.
        drained_ms: when an operator began to drain it; 0: it is not drained.
    """

    epoch: int = 0
    drained_ms: int = 0


class Counted(NamedTuple):
    """What an owner has in other cells."""

    nodes: int = 0
    slots: int = 0


class Found(NamedTuple):
    """What a cell knows of a node that registers.

    Attributes:
        holder: the dispatcher of a live node of another process with this id; "": there is none.
        leases: number of its attempts that hold a slot.
        node: its epoch is 0 if the cell does not know it.
        owner: what its owner has in this cell, without this node.
    """

    holder: str
    leases: int
    node: Before
    owner: Counted


_NEW, _NOTHING = Before(), Counted()


class CellRegistry:
    """Registers and removes nodes of one cell, and expels silent ones.

    Each operation is a series of steps that may be interrupted anywhere: a repeated call, or the
    sweep, continues from there.
    """

    def __init__(self, *, cell: Cell, settings: Settings) -> None:
        self._number = cell.number
        self._link = cell.link
        self._prefix = cell.prefix
        self._register_node = script_calls.RegisterNode(
            heartbeat_stale_ms=settings.heartbeat_stale_ms,
            running_lease_ms=settings.running_lease_ms,
            owner_nodes=settings.owner_nodes,
            owner_slots=settings.owner_slots,
        ).call
        self._move_pools = script_calls.MovePools(
            pool_size=settings.pool_size, max_pools=settings.max_pools
        ).call
        self._remove_node = script_calls.RemoveNode(
            pools_per_step=POOLS_A_STEP, pool_size=settings.pool_size
        ).call
        self._look_up_node = script_calls.LookUpNode(
            heartbeat_stale_ms=settings.heartbeat_stale_ms
        ).call

    async def register(
        self,
        request: pool_pb2.RegisterNodeRequest,
        before: Before = _NEW,
        elsewhere: Counted = _NOTHING,
    ) -> pool_pb2.RegisterNodeResponse:
        """Registers a node, and moves it between pools if its capabilities have changed.

        Args:
            request: what the node is.
            before: if it comes from another cell, what it was there.
            elsewhere: what its owner has in other cells.
        """
        able = Capabilities.of(request.capabilities)
        owner = request.node_owner
        # A node that registers with another owner has to change its place in every pool.
        digest = f"{able.digest()}@{owner}" if owner else able.digest()
        reply = await self._link.call(
            *self._register_node(
                node_id=request.node_id,
                incarnation=request.incarnation,
                stream=request.stream_id,
                health=request.health or common_pb2.NODE_HEALTH_READY,
                load=max(request.load.cpu, request.load.gpu),
                max_concurrent_jobs=request.max_concurrent_jobs,
                stages=able.stages,
                owner_instance=request.owner_instance,
                owner_address=request.owner_address,
                asr_langs=_json(able.asr_langs),
                semantic_langs=_json(able.semantic_langs),
                tts_langs=_json(able.tts_langs),
                nmt_pairs=_json(able.nmt_pairs),
                pools_hash=digest,
                node_owner=owner,
                epoch_before=before.epoch,
                drained_ms_before=before.drained_ms,
                owner_nodes_elsewhere=elsewhere.nodes,
                owner_slots_elsewhere=elsewhere.slots,
                running=[codes.lease_member(each) for each in request.running],
                finished=[codes.lease_member(each) for each in request.finished],
            )
        )
        if reply[0] != _OK:
            raise refusal(reply, "", request.node_id)
        _, epoch, in_place = reply
        wanted = able.pools()
        joins = leaves = 0
        if not in_place:
            joins, leaves = await self._move(request.node_id, epoch, wanted, owner, digest)
        return pool_pb2.RegisterNodeResponse(
            epoch=epoch,
            pools=len(wanted),
            pools_joined=joins,
            pools_left=leaves,
            cell=self._number,
        )

    async def look_up(self, node_id: str, incarnation: str, owner: str) -> Found:
        """What this cell knows of a node that registers, and of its owner."""
        holder, *numbers = await self._link.call(
            *self._look_up_node(node_id=node_id, incarnation=incarnation, node_owner=owner)
        )
        epoch, leases, drained_ms, nodes, slots = numbers
        return Found(holder.decode(), leases, Before(epoch, drained_ms), Counted(nodes, slots))

    async def leave(self, node_ids: Sequence[str], most: int) -> list[str]:
        """Makes nodes leave the cell; lua/leave_cell.lua has the rules. Returns which have left.

        Args:
            node_ids: which.
            most: of them leave, and are marked, at most.
        """
        left = await self._link.call(*script_calls.leave_cell(most=most, node_ids=node_ids))
        return [node_id.decode() for node_id in left]

    async def _move(
        self, node_id: str, epoch: int, wanted: set[str], owner: str, digest: str
    ) -> tuple[int, int]:
        key = f"{self._prefix}:node:{node_id}:pools"
        flat = await self._link.command("HGETALL", key)
        has = {
            name.decode(): place.decode() for name, place in zip(flat[::2], flat[1::2], strict=True)
        }
        in_place = {name for name, place in has.items() if place.partition("@")[2] == owner}
        joining, leaving = wanted - in_place, has.keys() - wanted
        joins, leaves = iter(sorted(joining)), iter(sorted(leaving))
        while True:
            join = list(islice(joins, POOLS_A_STEP))
            leave = list(islice(leaves, POOLS_A_STEP - len(join)))
            last = len(join) + len(leave) < POOLS_A_STEP
            reply = await self._link.call(
                *self._move_pools(
                    node_id=node_id,
                    epoch=epoch,
                    pools_hash=digest if last else "",
                    join=join,
                    leave=leave,
                )
            )
            if reply[0] == b"POOL_FULL":
                # Being in only some of its pools would be confusing.
                await self._take_out(node_id, epoch, forget=False)
            if reply[0] != _OK:
                raise refusal(reply, "", node_id)
            if last:
                return len(joining), len(leaving)

    async def remove(self, node_id: str, epoch: int) -> tuple[bool, int]:
        """Deletes a node. Returns whether it existed, and how many pools it has left.

        Args:
            node_id: which.
            epoch: only if it has this one; 0: any.
        """
        return await self._take_out(node_id, epoch, forget=True)

    async def expel(self, node_id: str, silent_ms: int) -> None:
        """Takes a node out of its pools if it was silent for so long; it stays known."""
        await self._take_out(node_id, 0, forget=False, silent_ms=silent_ms)

    async def forget(self, node_id: str, silent_ms: int) -> None:
        """Deletes a node if it was silent for so long."""
        await self._take_out(node_id, 0, forget=True, silent_ms=silent_ms)

    async def _take_out(
        self, node_id: str, epoch: int, *, forget: bool, silent_ms: int = 0
    ) -> tuple[bool, int]:
        existed, left = False, 0
        while True:
            reply = await self._link.call(
                *self._remove_node(node_id=node_id, epoch=epoch, forget=forget, silent_ms=silent_ms)
            )
            if reply[0] == b"alive":
                return existed, left
            if reply[0] != _OK:
                raise refusal(reply, "", node_id)
            _, known, stepped, remain = reply
            existed, left = existed or bool(known), left + stepped
            if remain == 0:
                return existed, left


def _json(codes_: tuple[str, ...]) -> str:
    return json.dumps(codes_, separators=(",", ":"))
