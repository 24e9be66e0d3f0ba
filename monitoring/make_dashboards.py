"""Generates the Grafana dashboards.

`python monitoring/make_dashboards.py` writes dashboards/*.json.
Tests check that the files are up to date and that every panel uses metrics that are exported.
"""

import json
import sys
from pathlib import Path

from console_rows import CONSOLE
from grafana import Panel, Rows, dashboard, quantiles, rate


def process_row(service: str) -> list[Panel]:
    """Panels about processes, the same for every service."""
    up = f"lingua_{service}_redis_up"
    ours = f"and on (job, instance) {up}"
    return [
        Panel("Redis answers", [(up, "{{instance}}")], about="1 if Redis answers, else 0."),
        Panel(
            "Failed Redis calls",
            [
                (
                    f"sum by (kind) (rate(lingua_redis_errors_total[$__rate_interval]) {ours})",
                    "{{kind}}",
                )
            ],
            "ops",
            "away: refused at once, because Redis was known to be down.",
        ),
        Panel(
            "CPU",
            [(f"rate(process_cpu_seconds_total[$__rate_interval]) {ours}", "{{instance}}")],
            "percentunit",
            "A process uses at most one core: near 100 %, add replicas.",
        ),
        Panel("Memory", [(f"process_resident_memory_bytes {ours}", "{{instance}}")], "bytes"),
        Panel("Tasks", [(f"lingua_{service}_tasks", "{{instance}}")]),
        Panel(
            "Finished gRPC calls",
            [
                (
                    "sum by (method, code) (rate(lingua_grpc_server_handled_total"
                    f"[$__rate_interval]) {ours})",
                    "{{method}} {{code}}",
                )
            ],
            "ops",
        ),
        Panel(
            "gRPC calls, 95th percentile",
            [
                (
                    "histogram_quantile(0.95, sum by (le, method) ("
                    f"rate(lingua_grpc_server_handling_seconds_bucket[$__rate_interval]) {ours}))",
                    "{{method}}",
                )
            ],
            "s",
            "Without bidirectional streams.",
        ),
    ]


OVERVIEW: Rows = {
    "What people get": [
        Panel("Sessions", [("sum(lingua_gateway_sessions)", "connected")]),
        Panel(
            "Utterances",
            [
                (rate("lingua_gateway_results_total"), "results"),
                (rate("lingua_gateway_missing_total", "reason"), "missing: {{reason}}"),
            ],
            "ops",
        ),
        Panel(
            "From the cut to the result",
            quantiles("lingua_gateway_result_seconds"),
            "s",
            "How long a speaker waits, in addition to the pause that ends an utterance.",
        ),
    ],
    "Room": [
        Panel(
            "Slots of the fleet",
            [
                ("max(lingua_pool_fleet_slots)", "slots"),
                ("max(lingua_pool_fleet_free_slots)", "free"),
            ],
            about="Each node is counted once.",
        ),
        Panel(
            "Utilisation by direction",
            [("direction:lingua_pool_utilization_ratio:max", "{{src}}→{{tgt}} {{kind}}")],
            "percentunit",
            "Scale on this. 1 if a direction has no slots.",
        ),
        Panel(
            "Nodes",
            [("max by (health) (lingua_pool_nodes)", "{{health}}")],
        ),
    ],
    "Health": [
        Panel(
            "Instances",
            [
                ("count(lingua_gateway_redis_up)", "gateways"),
                ("count(lingua_dispatcher_redis_up)", "dispatchers"),
                ("count(lingua_pool_redis_up)", "pool services"),
            ],
        ),
        Panel(
            "Failure ratios",
            [
                ("lingua:missing:ratio_rate5m", "missing results"),
                ("lingua:retries:ratio_rate5m", "retries"),
                ("lingua:ack_timeouts:ratio_rate5m", "ACK timeouts"),
                ("lingua:reservation_failures:ratio_rate5m", "reservations that fail"),
            ],
            "percentunit",
        ),
        Panel(
            "Connections that are down",
            [
                ("sum(1 - lingua_gateway_dispatcher_up)", "gateways without a dispatcher"),
                ("sum(1 - lingua_dispatcher_pool_up)", "dispatchers without a pool service"),
                ("sum(1 - lingua_gateway_redis_up)", "gateways without Redis"),
                ("sum(1 - lingua_dispatcher_redis_up)", "dispatchers without Redis"),
                ("sum(1 - lingua_pool_redis_up)", "pool services without Redis"),
            ],
        ),
    ],
}

GATEWAY: Rows = {
    "Sessions": [
        Panel(
            "Connected",
            [
                (
                    "sum by (instance, transport) (lingua_gateway_sessions)",
                    "{{instance}} {{transport}}",
                )
            ],
        ),
        Panel(
            "Opened and ended",
            [
                (rate("lingua_gateway_sessions_opened_total", "how"), "opened: {{how}}"),
                (rate("lingua_gateway_sessions_ended_total", "how"), "ended: {{how}}"),
            ],
            "ops",
            "left: the stream broke, and the session can be resumed.",
        ),
        Panel("Refused", [(rate("lingua_gateway_opens_refused_total", "reason"), "{{reason}}")]),
        Panel(
            "Refused by a tenant's limits",
            [(rate("lingua_quota_refused_total", "limit"), "{{limit}}")],
            "ops",
            "Sessions that were not opened, and refused placements; a waiting job retries often.",
        ),
        Panel("Connections to the web entry", [("lingua_gateway_web_connections", "{{instance}}")]),
        Panel(
            "Web requests that were refused, and WebSockets by close code",
            [
                (
                    'sum by (status) (rate(lingua_gateway_web_requests_total{status=~"[45].."}'
                    "[$__rate_interval]))",
                    "{{status}}",
                ),
                (rate("lingua_gateway_web_closed_total", "code"), "closed: {{code}}"),
            ],
            "ops",
        ),
        Panel(
            "Calls refused: unauthenticated or not permitted",
            [(rate("lingua_auth_refused_total", "reason"), "{{reason}}")],
            "ops",
        ),
    ],
    "Speech": [
        Panel(
            "Chunks",
            [
                (rate("lingua_gateway_chunks_total"), "taken"),
                (rate("lingua_gateway_repeated_chunks_total"), "repeated"),
                (rate("lingua_gateway_refused_chunks_total"), "refused"),
                (rate("lingua_gateway_gaps_total"), "out of sequence"),
            ],
            "ops",
        ),
        Panel(
            "Utterances cut",
            [(rate("lingua_gateway_finalized_total", "reason"), "{{reason}}")],
            "ops",
        ),
        Panel(
            "Speech, in seconds a second",
            [(rate("lingua_gateway_audio_seconds_total"), "speech")],
            about="The average number of people who talk at the same time.",
        ),
        Panel(
            "Ends that cut nothing",
            [
                (rate("lingua_gateway_duplicate_finalizes_total"), "duplicate"),
                (rate("lingua_gateway_empty_finalizes_total"), "empty"),
                (rate("lingua_gateway_fragments_total"), "fragment kept for the next"),
            ],
            "ops",
        ),
        Panel(
            "Jobs",
            [
                ("sum(lingua_gateway_jobs)", "in progress"),
                ("sum(lingua_gateway_timers)", "timers"),
            ],
        ),
        Panel("Dispatcher connected", [("lingua_gateway_dispatcher_up", "{{instance}}")]),
        Panel(
            "Audio that nodes hold",
            [("lingua_gateway_held_bytes", "{{instance}}")],
            "bytes",
            "The gateway keeps it until a result includes it, in case the node is lost.",
        ),
        Panel(
            "Held audio that was resent or lost",
            [
                (rate("lingua_gateway_turns_moved_total"), "brought to another node"),
                (rate("lingua_gateway_held_lost_total"), "lost"),
            ],
            "ops",
        ),
    ],
    "Results": [
        Panel(
            "Delivered",
            [
                (rate("lingua_gateway_results_total"), "results"),
                (rate("lingua_gateway_missing_total", "reason"), "missing: {{reason}}"),
                (rate("lingua_gateway_late_results_total"), "too late or twice"),
                (rate("lingua_gateway_deadline_misses_total"), "deadline missed"),
                (rate("lingua_gateway_submit_retries_total"), "submitted again"),
            ],
            "ops",
        ),
        Panel("From the cut to the delivery", quantiles("lingua_gateway_result_seconds"), "s"),
        Panel("From the cut to a node's ACK", quantiles("lingua_gateway_dispatch_seconds"), "s"),
        Panel("At the node", quantiles("lingua_gateway_node_seconds"), "s"),
        Panel("Wait for earlier results", quantiles("lingua_gateway_deliver_seconds"), "s"),
    ],
    "Rooms": [
        Panel(
            "Rooms and listeners",
            [
                ("sum(lingua_gateway_rooms)", "rooms, once for each gateway with members"),
                ("sum by (transport) (lingua_gateway_room_listeners)", "listeners: {{transport}}"),
            ],
        ),
        Panel(
            "Outcomes in rooms",
            [
                (rate("lingua_gateway_room_result_seconds_count"), "results, in each language"),
                (rate("lingua_gateway_room_missing_total", "reason"), "missing: {{reason}}"),
            ],
            "ops",
        ),
        Panel(
            "Fan-out",
            [
                (rate("lingua_gateway_room_news_total"), "wake-ups"),
                (rate("lingua_gateway_room_outcomes_total"), "outcomes read"),
                (rate("lingua_gateway_room_deliveries_total"), "outcomes sent to listeners"),
            ],
            "ops",
        ),
        Panel(
            "From the cut to the result in a room",
            quantiles("lingua_gateway_room_result_seconds"),
            "s",
        ),
        Panel(
            "Listeners in trouble",
            [
                (rate("lingua_gateway_room_refused_total", "reason"), "could not join: {{reason}}"),
                (rate("lingua_gateway_room_catch_ups_total"), "reads to catch up"),
                (rate("lingua_gateway_room_gaps_total"), "told of a gap"),
            ],
            "ops",
            "A gap: the listener was away for longer than outcomes are kept.",
        ),
    ],
    "Processes": process_row("gateway"),
}

DISPATCHER: Rows = {
    "Jobs": [
        Panel("Jobs by home dispatcher", [("lingua_dispatcher_jobs", "{{instance}}")]),
        Panel(
            "Finished",
            [(rate("lingua_dispatcher_jobs_finished_total", "outcome"), "{{outcome}}")],
            "ops",
        ),
        Panel("From submission to result", quantiles("lingua_dispatcher_job_seconds"), "s"),
        Panel("From submission to the node", quantiles("lingua_dispatcher_dispatch_seconds"), "s"),
        Panel("From the node to its ACK", quantiles("lingua_dispatcher_ack_seconds"), "s"),
        Panel(
            "Kept for another gateway",
            [
                (rate("lingua_dispatcher_kept_results_total"), "kept"),
                (rate("lingua_dispatcher_orphans_total"), "orphaned reports"),
                (rate("lingua_dispatcher_late_results_total"), "late results, not kept"),
                (rate("lingua_dispatcher_partials_dropped_total"), "partial results dropped"),
            ],
            "ops",
        ),
    ],
    "Waiting for room": [
        Panel("Waiting jobs", [("lingua_dispatcher_waiting_jobs", "{{instance}}")]),
        Panel("Waiting time", quantiles("lingua_dispatcher_queue_wait_seconds"), "s"),
        Panel(
            "How waits end",
            [
                (rate("lingua_dispatcher_queue_wait_seconds_count", "outcome"), "{{outcome}}"),
                (rate("lingua_dispatcher_waits_total"), "asked, and had to wait"),
            ],
            "ops",
        ),
    ],
    "Failures": [
        Panel(
            "Retries", [(rate("lingua_dispatcher_retries_total", "reason"), "{{reason}}")], "ops"
        ),
        Panel(
            "ACK timeouts and rejects",
            [
                (rate("lingua_dispatcher_ack_timeouts_total"), "ACK timeout"),
                (rate("lingua_dispatcher_rejects_total", "cause"), "reject: {{cause}}"),
            ],
            "ops",
        ),
        Panel(
            "Peers that read too slowly",
            [(rate("lingua_dispatcher_backpressure_total", "peer"), "{{peer}}")],
            "ops",
        ),
        Panel(
            "Reports over a contract limit",
            [
                (rate("lingua_dispatcher_invalid_reports_total", "kind"), "report: {{kind}}"),
                (rate("lingua_dispatcher_too_large_total", "peer"), "too large for: {{peer}}"),
            ],
            "ops",
        ),
    ],
    "Nodes and other dispatchers": [
        Panel("Connected nodes", [("lingua_dispatcher_nodes", "{{instance}}")]),
        Panel(
            "Nodes that fell silent",
            [(rate("lingua_dispatcher_silent_nodes_total"), "silent")],
            "ops",
        ),
        Panel(
            "Share of jobs for nodes of other dispatchers",
            [("lingua:relayed:ratio_rate5m", "placed elsewhere")],
            "percentunit",
        ),
        Panel("Relayed", [(rate("lingua_dispatcher_relayed_total"), "assignments")], "ops"),
        Panel("Pool service connected", [("lingua_dispatcher_pool_up", "{{instance}}")]),
    ],
    "Processes": process_row("dispatcher"),
}

POOL: Rows = {
    "Room by direction": [
        Panel(
            "Free slots",
            [("direction:lingua_pool_free_slots:min", "{{src}}→{{tgt}} {{kind}}")],
        ),
        Panel("Slots", [("direction:lingua_pool_slots:min", "{{src}}→{{tgt}} {{kind}}")]),
        Panel(
            "Utilisation",
            [("direction:lingua_pool_utilization_ratio:max", "{{src}}→{{tgt}} {{kind}}")],
            "percentunit",
        ),
        Panel(
            "Refused for lack of a node",
            [
                (
                    rate("lingua_pool_refusals_total", "kind, src, tgt, reason"),
                    "{{src}}→{{tgt}} {{kind}}: {{reason}}",
                )
            ],
            "ops",
            "other: a direction that no node has served.",
        ),
        Panel(
            "Slots of the fleet",
            [
                ("max(lingua_pool_fleet_slots)", "slots"),
                ("max(lingua_pool_fleet_free_slots)", "free"),
            ],
        ),
        Panel(
            "Age of these numbers",
            [("time() - lingua_pool_sampled_timestamp_seconds", "{{instance}}")],
            "s",
        ),
    ],
    "Nodes": [
        Panel("By health", [("max by (health) (lingua_pool_nodes)", "{{health}}")]),
        Panel(
            "In trouble",
            [
                ("max(lingua_pool_late_nodes)", "heartbeat late"),
                ("max(lingua_pool_ejected_nodes)", "ejected"),
            ],
        ),
        Panel(
            "Heartbeats",
            [
                (rate("lingua_pool_beats_total"), "taken in"),
                (rate("lingua_pool_nodes_expelled_total"), "nodes taken out of their pools"),
            ],
            "ops",
        ),
    ],
    "Cells": [
        Panel(
            "Redis answers",
            [("min by (cell) (lingua_redis_cell_up)", "cell {{cell}}")],
            about="1 if the Redis of the cell answers every process, else 0.",
        ),
        Panel("Nodes", [("max by (cell) (lingua_pool_cell_nodes)", "cell {{cell}}")]),
        Panel(
            "Slots",
            [
                ("max by (cell) (lingua_pool_cell_slots)", "cell {{cell}}"),
                ("max by (cell) (lingua_pool_cell_free_slots)", "free in cell {{cell}}"),
            ],
        ),
        Panel(
            "Jobs placed in another cell",
            [(rate("lingua_pool_placed_elsewhere_total"), "jobs")],
            "ops",
            about="Such a job costs Redis more. If they are many, there are too many cells.",
        ),
    ],
    "Reservations": [
        Panel(
            "Allocate", [(rate("lingua_pool_allocations_total", "outcome"), "{{outcome}}")], "ops"
        ),
        Panel("Duration of a selection", quantiles("lingua_pool_selection_seconds"), "s"),
        Panel(
            "How nodes are chosen",
            [(rate("lingua_pool_placements_total", "path"), "{{path}}")],
            "ops",
        ),
        Panel(
            "Turn affinity",
            [(rate("lingua_pool_affinity_total", "kind, outcome"), "{{kind}}: {{outcome}}")],
            "ops",
            "hit: the job went to the node that holds its turn.",
        ),
        Panel(
            "Audio that nodes hold",
            [(rate("lingua_dispatcher_audio_held_total", "outcome"), "{{outcome}}")],
            "ops",
            "limit, not_cut: a node holds more than it may.",
        ),
        Panel(
            "Share of turns that stay on their node",
            [
                ("lingua:affinity_hits:ratio_rate5m", "hits"),
                ("lingua:turns_broken:ratio_rate5m", "broken"),
            ],
            "percentunit",
        ),
        Panel("No capable node", [(rate("lingua_pool_empty_total"), "refused")], "ops"),
        Panel("Commit", [(rate("lingua_pool_commits_total", "outcome"), "{{outcome}}")], "ops"),
        Panel("Release", [(rate("lingua_pool_releases_total", "cause"), "{{cause}}")], "ops"),
        Panel(
            "Complete and Reserve",
            [
                (rate("lingua_pool_completions_total", "outcome"), "complete: {{outcome}}"),
                (rate("lingua_pool_reserves_total", "outcome"), "reserve: {{outcome}}"),
            ],
            "ops",
        ),
    ],
    "Processes": process_row("pool"),
}

DASHBOARDS = (
    ("overview", "Lingua: overview", OVERVIEW),
    ("gateway", "Lingua: session gateway", GATEWAY),
    ("dispatcher", "Lingua: dispatcher", DISPATCHER),
    ("pool", "Lingua: pool service", POOL),
    ("console", "Lingua: console", CONSOLE),
)


def write_all(folder: Path) -> None:
    """Write one file per dashboard."""
    folder.mkdir(exist_ok=True)
    for name, title, rows in DASHBOARDS:
        made = dashboard(name, title, rows)
        text = json.dumps(made, indent=2, ensure_ascii=False)
        (folder / f"{name}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    write_all(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "dashboards")
