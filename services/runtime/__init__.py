"""What every service needs and none owns.

Each folder is a topic; `service_process` puts them together and runs a service. From the bottom up:
single modules that import nothing of ours, `errors`, `contract`, `settings`, `auth` and
`telemetry`, `redis` and `rpc`, `instances`, `service_process`. A part imports only what is below it
(import-linter). Services and the CLI import from here; nothing here imports a service.
"""
