"""The `lingua` command.

`commands/` has one module per command, `clients/` calls the services, `views/` formats output,
`speak/`, `up/` and `sample_node/` hold what the commands of these names do. This package may import
`services.runtime` and the SDK; `serve` imports the services. Only tests and examples import this
package; they use `up`.
"""


def main() -> None:
    """Run the command with the arguments of the process; does not return."""
    # Imported here so that importing one part of this package does not load all of it.
    from lingua_scheduler.cli.app import app

    app(prog_name="lingua")
