"""Settings of the pool service."""

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator

from lingua_scheduler.services.runtime.settings.field_types import HOUR_MS, field, lower, whole

TimeoutBinding = Literal["held", "always"]


class PoolFields(BaseModel):
    """Nodes, selection, reservation and affinity."""

    sample_k: int = whole(20, 1, 1000, "nodes drawn at random for one selection")
    pool_size: int = whole(100, 1, 10_000, "nodes per shard of a pool")
    max_pools: int = whole(1000, 1, 100_000, "shards per language pair")
    heartbeat_stale_ms: int = whole(
        15_000, 100, HOUR_MS, "ms without a heartbeat after which a node gets no jobs"
    )
    load_threshold: float = field(
        0.95,
        "load from 0 to 1 above which a node gets no jobs",
        "must be a number from 0 to 1",
        ge=0,
        le=1,
        allow_inf_nan=False,
    )
    eject_failures: int = whole(
        3,
        1,
        255,
        "failures in a row after which a node is ejected; of consecutive failures of one "
        "session, only the first counts",
    )
    eject_ms: int = whole(30_000, 1, HOUR_MS, "ms of the first ejection; doubles each time")
    eject_max_ms: int = whole(300_000, 1, 24 * HOUR_MS, "ms of the longest ejection")
    eject_max_share: float = field(
        0.5,
        "largest share of the nodes drawn for a job that may be skipped as ejected",
        "must be a number from 0 to 1",
        ge=0,
        le=1,
        allow_inf_nan=False,
    )
    reservation_ttl_ms: int = whole(
        5000, 10, 600_000, "ms that a slot stays reserved without an ACK"
    )
    running_lease_ms: int = whole(
        30_000, 100, HOUR_MS, "ms that a running job keeps its slot without being renewed"
    )
    binding_ttl_ms: int = whole(
        300_000, 1000, 24 * HOUR_MS, "ms that a turn stays bound to its node"
    )
    held_in_row_max: int = whole(
        4, 0, 1000, "pauses in a row across which a node may hold audio of a turn (0: no limit)"
    )
    timeout_binding: Annotated[TimeoutBinding, BeforeValidator(lower)] = field(
        "held",
        "which Timeout jobs bind the turn to their node: held (those whose audio it holds) or "
        "always",
        "must be held or always",
    )
    job_record_ttl_ms: int = whole(
        HOUR_MS, 1000, 168 * HOUR_MS, "ms that the record of a job is kept after its last change"
    )
    unplaced_record_ttl_ms: int = whole(
        600_000, 1000, 168 * HOUR_MS, "ms that the record of a job that was never assigned is kept"
    )
    job_log_max: int = whole(
        50_000,
        0,
        10_000_000,
        "changes of jobs that the log for listing recent jobs keeps, approximately (0: no log)",
    )
    node_reconnect_grace_ms: int = whole(
        10_000, 0, 600_000, "ms within which a node that reconnects keeps its jobs"
    )
    node_forget_ms: int = whole(
        HOUR_MS, 1000, 168 * HOUR_MS, "ms without a heartbeat after which a node is forgotten"
    )
    sweep_interval_ms: int = whole(1000, 10, HOUR_MS, "ms between two sweeps")
    fleet_watch_ms: int = whole(
        2000,
        100,
        60_000,
        "ms between two samples of all nodes while a console watches them; more if a sample takes "
        "long",
    )
