"""The `lingua` group: its commands, loaded when they are called, and how all of them fail."""

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from lingua_scheduler.cli import failures
from lingua_scheduler.cli.grpc_environment import prepare_grpc
from lingua_scheduler.cli.options import client_options

# What the help says of each command, here so that the help loads none of them.
COMMANDS = {
    "certs": "Make the certificates for TLS: an authority, and what it issues.",
    "config": "Show every setting, its value, and where it comes from.",
    "health": "Ask services whether they serve.",
    "jobs": "List, show and cancel jobs.",
    "nodes": "List, show, drain and remove nodes.",
    "pools": "Show how many nodes and free slots each direction has.",
    "serve": "Run one service in the foreground.",
    "sessions": "List and show sessions.",
    "sim-nodes": "Run simulated nodes, over real streams, in one process.",
    "speak": "Speak WAV files, or by --mic into a microphone, and show the translations.",
    "token": "Make and read tokens, which say who calls.",
    "up": "Run everything on this machine: a Redis and all services.",
}

EPILOG = """\b
Exit codes:
  0  done
  1  failed
  2  wrong usage or a bad setting
  3  the service cannot be reached, or its Redis is down
  4  not found
"""


class App(click.Group):
    """Finds command X as `X` in the module `lingua_scheduler.cli.commands.X`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order in which the help shows them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Loads a command."""
        if cmd_name not in COMMANDS:
            return None
        prepare_grpc(cmd_name)
        name = cmd_name.replace("-", "_")
        module = importlib.import_module(f"lingua_scheduler.cli.commands.{name}")
        command = getattr(module, name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the list of commands."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Runs the command line and exits, with words in place of tracebacks."""
        args = list(sys.argv[1:] if args is None else args)
        # Asked for even where the arguments cannot be parsed.
        as_json = "--json" in (args[: args.index("--")] if "--" in args else args)
        try:
            code = super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        except click.Abort:
            click.echo("Aborted.", err=True)
            sys.exit(failures.FAILED)
        except click.ClickException as error:
            failures.report(error, as_json)
            sys.exit(error.exit_code)
        except Exception as error:
            from lingua_scheduler.cli.explain import explain

            failure = explain(error)
            failures.report(failure, as_json)
            sys.exit(failure.exit_code)
        sys.exit(code if isinstance(code, int) else 0)


@click.group(
    cls=App,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@client_options("pool", "dispatcher", "gateway")
@click.version_option(package_name="lingua-scheduler", message="%(package)s %(version)s")
@click.pass_context
def app(context: click.Context) -> None:
    """The scheduler of a live, face-to-face speech translator.

    Settings come from LINGUA_ variables of the environment; 'lingua config' shows them.
    """
    if os.environ.get("NO_COLOR"):
        context.color = False
