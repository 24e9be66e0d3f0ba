"""The three services in one process.

Imports the services and `runtime`; only the CLI imports it.
"""
