"""What every service needs and none owns.

Each folder is a topic; `hosted_service` puts them together for one service, and `service_process`
runs a process of one service or several. From the bottom up: single modules that import nothing of
ours, `errors`, `contract`, `settings`, `auth` and `telemetry`, `redis` and `rpc`, `instances`,
`hosted_service`, `service_process`. A part imports only what is below it (import-linter). Services
and the CLI import from here; nothing here imports a service.
"""
