"""The dashboard of the operators' console."""

from grafana import Panel, Rows, rate

CONSOLE: Rows = {
    "Viewers": [
        Panel(
            "Browsers",
            [
                ("lingua_console_viewers", "{{instance}} event streams"),
                ("lingua_console_connections", "{{instance}} connections"),
            ],
        ),
        Panel(
            "Documents computed for event streams",
            [("lingua_console_watched_documents", "{{instance}}")],
            about="Viewers of the same page share one.",
        ),
        Panel(
            "Requests",
            [(rate("lingua_console_requests_total", "path, status"), "{{path}} {{status}}")],
            "ops",
        ),
        Panel(
            "Actions of operators",
            [(rate("lingua_console_actions_total", "action, outcome"), "{{action}}: {{outcome}}")],
            "ops",
        ),
    ],
    "Reads from the services": [
        Panel(
            "Age of what pages show",
            [("lingua_console_source_age_seconds", "{{instance}} {{source}}")],
            "s",
        ),
        Panel(
            "Failed reads",
            [(rate("lingua_console_poll_errors_total", "source"), "{{source}}")],
            "ops",
        ),
        Panel("Watchers of the fleet", [("lingua_pool_fleet_watchers", "{{instance}}")]),
        Panel(
            "Samples of the fleet",
            [
                ("lingua_pool_fleet_sample_seconds", "{{instance}} duration"),
                (
                    "time() - lingua_pool_fleet_sampled_timestamp_seconds "
                    "and lingua_pool_fleet_watchers > 0",
                    "{{instance}} age of the last one",
                ),
            ],
            "s",
            "Pool services that have watchers read all nodes every LINGUA_FLEET_WATCH_MS.",
        ),
    ],
}
