"""The `lingua` command: what is in force, services in the foreground, speech, nodes and jobs.

Nothing imports this package but the tests and the examples, which use `up` to start everything.
"""

import os
import sys


def main() -> None:
    """Runs the command with the arguments of the process; does not return."""
    if "serve" not in sys.argv[1:]:
        # A command says itself why a connection failed, and better. It is read at the import.
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    # Here and not above, so that importing one part of this package does not load all of it.
    from lingua_scheduler.cli.app import app

    app(prog_name="lingua")
