"""Environment variables for gRPC, which reads them once, when it is imported.

Variables that are already set are kept. If gRPC does not know an experiment, it logs a line and
continues without it.
"""

import os
import sys

# One wake-up less per message (decision 23).
_SERVICE = {"GRPC_EXPERIMENTS": "-event_engine_client,-event_engine_listener"}
# Commands report by themselves why a connection failed.
_COMMAND = {"GRPC_VERBOSITY": "NONE"}


def prepare_grpc(command: str) -> None:
    """Set the variables for a command of `lingua`. Call it before loading the command."""
    if "grpc" in sys.modules:
        return
    for name, value in (_SERVICE if command == "serve" else _COMMAND).items():
        os.environ.setdefault(name, value)
