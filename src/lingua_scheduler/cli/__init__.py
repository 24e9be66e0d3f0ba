"""The `lingua` command: what is in force, services in the foreground, speech, nodes and jobs.

Nothing imports this package but the tests and the examples, which use `up` to start everything.
"""

import os
import sys


def main() -> None:
    """Runs the command with the arguments of the process; does not return."""
    # gRPC reads these at the import.
    if "serve" in sys.argv[1:]:
        # Sockets are polled by the thread that waits for what came, not by one more (decision 23).
        os.environ.setdefault("GRPC_EXPERIMENTS", "-event_engine_client,-event_engine_listener")
    else:
        # A command says itself why a connection failed, and better.
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    # Here and not above, so that importing one part of this package does not load all of it.
    from lingua_scheduler.cli.app import app

    app(prog_name="lingua")
