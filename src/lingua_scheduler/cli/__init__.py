"""The `lingua` command: what is in force, services in the foreground, speech, nodes and jobs.

Nothing imports this package but the tests and the examples, which use `up` to start everything.
"""


def main() -> None:
    """Runs the command with the arguments of the process; does not return."""
    # Here and not above, so that importing one part of this package does not load all of it.
    from lingua_scheduler.cli.app import app

    app(prog_name="lingua")
