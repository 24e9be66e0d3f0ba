"""Nodes: a page of them, and one."""

from collections.abc import Sequence
from typing import Any

from lingua_scheduler.services.console.documents.jobs import job_row
from lingua_scheduler.services.console.documents.query import Query
from lingua_scheduler.services.console.services.sources import Sources
from lingua_scheduler.services.console.store.fleet import Fleet
from lingua_scheduler.services.console.store.jobs import JobIndex
from lingua_scheduler.services.console.store.node import GROUPS, FleetNode
from lingua_scheduler.services.console.store.node_pages import SORTS, NodeQuery, node_page
from lingua_scheduler.services.console.store.series import INTERVAL_S
from lingua_scheduler.services.runtime.errors import DependencyDownError, NodeNotFoundError
from lingua_scheduler.v1 import common_pb2, pool_pb2

_SHOWN_PAIRS = 200
_SHOWN_JOBS = 50
_SHOWN_FAILURES = 20
_STAGE = "STAGE_KIND_"


def nodes(sources: Sources, query: Query) -> dict[str, Any]:
    """The document `nodes`."""
    asked = NodeQuery(
        search=query.text("search"),
        health=query.choice("health", GROUPS),
        src=query.language("src"),
        tgt=query.language("tgt"),
        sort=query.choice("sort", SORTS, "id"),
        desc=query.flag("desc", False),
        offset=query.offset(),
        limit=query.limit(),
    )
    query.done()
    fleet = sources.fleet
    fleet.settle(sources.now_ms())
    page = node_page(fleet, asked)
    return {
        "rows": {node.node_id: node_row(fleet, node) for node in page.nodes},
        "order": [node.node_id for node in page.nodes],
        "total": page.total,
        "offset": asked.offset,
        "limit": asked.limit,
        "counts": page.counts,
    }


async def node(sources: Sources, node_id: str, query: Query) -> dict[str, Any]:
    """The document `nodes/<id>`."""
    query.required_id("node_id", node_id)
    query.done()
    fleet = sources.fleet
    fleet.settle(sources.now_ms())
    known = fleet.nodes.get(node_id)
    response = await _read(sources, node_id, known)
    if known is None:
        # It has registered since the last message about the fleet.
        known = FleetNode(response.node, row=0, tick=0)
        used: list[int] = []
    else:
        used = fleet.used_series(known)
    shown = {
        **node_row(fleet, known),
        "address": known.address,
        "epoch": known.epoch,
        "last_heartbeat_ms": max(known.last_heartbeat_ms, response.node.last_heartbeat_ms),
        "capabilities": _capabilities(response.node.capabilities),
        "directions_total": fleet.set_of(known).directions() or response.node.pools,
    }
    return {
        "node": shown,
        "leases": [_lease(each) for each in response.leases],
        "series": {
            "interval_s": INTERVAL_S,
            "end_ms": fleet.ticked_ms,
            "used": used,
            "slots": known.slots,
        },
        "jobs": _jobs(sources.jobs, node_id),
        "failures": _failures(sources.jobs, node_id),
    }


def node_row(fleet: Fleet, node: FleetNode) -> dict[str, Any]:
    """A node as a table shows it."""
    shared = fleet.set_of(node)
    row: dict[str, Any] = {
        "id": node.node_id,
        "health": node.health,
        "ejected": node.ejected,
        "drained": node.drained,
        "slots": node.slots,
        "used": node.used,
        "load": round(node.load, 3),
        "failures": node.failures,
        "instance": node.instance,
        "sources": list(shared.sources),
        "sources_total": shared.sources_total,
        "targets": list(shared.targets),
        "targets_total": shared.targets_total,
    }
    if node.ejected:
        row["ejected_until_ms"] = node.ejected_until_ms
    if fleet.has_cells:
        row["cell"] = node.cell
    if node.owner:
        row["owner"] = node.owner
    if node.drained and node.drained_ms:
        row["drain"] = {
            "since_ms": node.drained_ms,
            "used_at_start": node.used_at_drain,
            "used_now": node.used,
        }
    return row


async def _read(
    sources: Sources, node_id: str, known: FleetNode | None
) -> pool_pb2.GetNodeResponse:
    """The node with its leases; without them if the pool service is away, but the node is known."""
    try:
        return await sources.node_reads.get(node_id)
    except (DependencyDownError, NodeNotFoundError) as error:
        is_gone = isinstance(error, NodeNotFoundError) and sources.problems.get("fleet") is None
        if known is None or is_gone:
            raise
        return pool_pb2.GetNodeResponse()


def _capabilities(declared: common_pb2.NodeCapabilities) -> dict[str, Any]:
    pairs = [f"{pair.src}:{pair.tgt}" for pair in declared.nmt_pairs[:_SHOWN_PAIRS]]
    return {
        "asr": list(declared.asr_langs),
        "semantic": list(declared.semantic_langs),
        "tts": list(declared.tts_langs),
        "pairs": pairs,
        "pairs_total": len(declared.nmt_pairs),
        "stages": [_stage(each) for each in declared.stages],
    }


def _stage(stage: common_pb2.StageKind.ValueType) -> str:
    known = common_pb2.StageKind.DESCRIPTOR.values_by_number.get(stage)
    return known.name.removeprefix(_STAGE) if known else str(stage)


def _lease(lease: pool_pb2.Lease) -> dict[str, Any]:
    return {
        "job_id": lease.attempt.job_id,
        "attempt": lease.attempt.attempt,
        "running": lease.running,
        "ends_ms": lease.ends_ms,
    }


def _jobs(index: JobIndex, node_id: str) -> list[dict[str, Any]]:
    newest = sorted(index.of_node(node_id), key=lambda job: job.changed_ms, reverse=True)
    return [job_row(job) for job in newest[:_SHOWN_JOBS]]


def _failures(index: JobIndex, node_id: str) -> Sequence[dict[str, Any]]:
    shown = []
    for failure in index.failures_of_node(node_id, _SHOWN_FAILURES):
        row: dict[str, Any] = {
            "at_ms": failure.at_ms,
            "job_id": failure.job_id,
            "attempt": failure.attempt,
            "outcome": failure.outcome,
        }
        if failure.error:
            row["error"] = failure.error
        shown.append(row)
    return shown
