"""Text output for nodes."""

import time
from collections.abc import Iterable

from lingua_scheduler.cli.views.output import ago, enum_name, span
from lingua_scheduler.cli.views.states import state
from lingua_scheduler.cli.views.table import Column, fact_page, table
from lingua_scheduler.v1 import common_pb2, pool_pb2

_HEALTH = common_pb2.DESCRIPTOR.enum_types_by_name["NodeHealth"]
_STAGE = common_pb2.DESCRIPTOR.enum_types_by_name["StageKind"]


def node_list(nodes: Iterable[pool_pb2.Node]) -> str:
    """One node per line."""
    return table(
        (
            *(Column("ID"), Column("HEALTH"), Column("SLOTS"), Column("LOAD", 3)),
            *(Column("HEARD", 4), Column("POOLS", 2), Column("DISPATCHER", 1)),
        ),
        [
            (
                node.node_id,
                health(node),
                f"{node.reserved + node.running}/{node.max_concurrent_jobs}",
                f"{node.load:.2f}",
                ago(node.last_heartbeat_ms),
                str(node.pools),
                node.owner_instance or "-",
            )
            for node in nodes
        ],
    )


def health(node: pool_pb2.Node) -> str:
    """The effective health, and whether the node is drained or ejected."""
    words = state(enum_name(_HEALTH, node.health).lower())
    if node.drained_by_operator:
        words += f" ({state('drained')})"
    if node.ejected_until_ms:
        words += f" ({state('ejected')})"
    return words


def drain_progress(node: pool_pb2.Node, now_ms: int | None = None) -> str:
    """How far the drain of a node is."""
    used = node.reserved + node.running
    if not node.drained_ms:
        # Drained through a service of an earlier version, which did not record that.
        return f"{used} {'job' if used == 1 else 'jobs'} left"
    left = f"{used} of {node.slots_used_at_drain} jobs left"
    return f"{left if used else 'empty'}, began {ago(node.drained_ms, now_ms)}"


def node_page(response: pool_pb2.GetNodeResponse) -> str:
    """Everything about one node, one fact per line, then its leases."""
    node, able = response.node, response.node.capabilities
    now = time.time_ns() // 1_000_000
    pairs = [f"{pair.src}:{pair.tgt}" for pair in able.nmt_pairs]
    facts = [
        ("health", health(node)),
        (
            "slots",
            f"{node.reserved} reserved + {node.running} running of {node.max_concurrent_jobs}",
        ),
        ("load", f"{node.load:.2f}"),
        ("last heard", ago(node.last_heartbeat_ms, now)),
        ("failures", f"{node.failures_in_row} in a row"),
        ("ejected", f"for {span(node.ejected_until_ms - now)}" if node.ejected_until_ms else "no"),
        ("dispatcher", f"{node.owner_instance or '-'} at {node.owner_address or '-'}"),
        ("epoch", str(node.epoch)),
        ("pools", str(node.pools)),
        ("recognises", " ".join(able.asr_langs) or "-"),
        ("repairs", " ".join(able.semantic_langs) or "-"),
        ("translates", " ".join(pairs) or "any to any"),
        ("speaks", " ".join(able.tts_langs) or "nothing (text jobs only)"),
    ]
    if node.drained_by_operator:
        facts.insert(2, ("drain", drain_progress(node, now)))
    if node.cell:
        facts.append(("cell", str(node.cell)))
    if node.node_owner:
        facts.insert(0, ("belongs to", node.node_owner))
    if able.stages:
        stages = (enum_name(_STAGE, stage).lower() for stage in able.stages)
        facts.append(("stages", " ".join(stages)))
    page = fact_page((node.node_id, ""), facts)
    if not response.leases:
        return f"{page}\n\nno leases"
    return f"{page}\n\n{_leases(response.leases, now)}"


def _leases(leases: Iterable[pool_pb2.Lease], now_ms: int) -> str:
    return table(
        (Column("JOB"), Column("ATTEMPT", 1), Column("STATE"), Column("LEASE ENDS")),
        [
            (
                lease.attempt.job_id,
                str(lease.attempt.attempt),
                state("running" if lease.running else "reserved"),
                f"in {span(lease.ends_ms - now_ms)}",
            )
            for lease in leases
        ],
    )
