"""Settings of the dispatcher."""

from pydantic import BaseModel

from lingua_scheduler.services.runtime.settings.field_types import HOUR_MS, whole


class DispatcherFields(BaseModel):
    """How a job gets to its node, and its result back."""

    ack_timeout_ms: int = whole(1500, 10, 600_000, "ms that a node has to acknowledge a job")
    max_retry: int = whole(2, 0, 20, "attempts after the first one")
    queue_wait_ms: int = whole(2000, 0, 600_000, "ms that a job waits for a free slot")
    other_nodes_wait_ms: int = whole(
        3000,
        0,
        600_000,
        "ms after a job's first failure before its last attempt may go to a node that has "
        "failed it, at most two thirds of its time",
    )
    waiting_bytes_max: int = whole(
        268_435_456,
        0,
        17_179_869_184,
        "bytes of audio of all waiting jobs; one tenant may use half",
    )
    hedge_after_ms: int = whole(
        0, 0, 600_000, "ms without an ACK after which a second node is tried (0: off)"
    )
    job_timeout_ms: int = whole(20_000, 100, HOUR_MS, "time limit of a job on a node, in ms")
    affinity_wait_ms: int = whole(
        20_000,
        0,
        600_000,
        "ms that a job waits for the node of its turn while that is full or silent, at most "
        "two thirds of its time (0: it goes elsewhere at once)",
    )
    affinity_away_ms: int = whole(
        3000, 0, 600_000, "ms of that wait while the node is disconnected"
    )
    node_heartbeat_ms: int = whole(5000, 10, 600_000, "ms between two heartbeats of a node")
    heartbeat_batch_ms: int = whole(
        1000, 10, 600_000, "ms between two batches of heartbeats to the pool service"
    )
    kept_result_ms: int = whole(
        300_000, 1000, 24 * HOUR_MS, "ms that a result is kept for the next gateway of its session"
    )
    kept_results_bytes: int = whole(
        268_435_456,
        33_554_432,
        1 << 40,
        "bytes of kept results in Redis, shared equally by the cells; one tenant may use a quarter",
    )
