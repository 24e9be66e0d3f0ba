"""The `lingua` group: loads commands on demand and reports their failures."""

import importlib
import sys
from collections.abc import Sequence
from typing import Any

import click

from lingua_scheduler.cli import failures
from lingua_scheduler.cli.colour import colour_wanted
from lingua_scheduler.cli.grpc_environment import prepare_grpc
from lingua_scheduler.cli.options import client_options

# Help texts, kept here so that `lingua --help` loads no command.
COMMANDS = {
    "cells": "List cells, drain them and make them ready.",
    "certs": "Create certificates for TLS: an authority and what it issues.",
    "config": "Show every setting, its value and its origin.",
    "health": "Check whether services are serving.",
    "instances": "List the instances of all services, and compare their settings.",
    "jobs": "List, show and cancel jobs.",
    "listen": "Listen to a room in a language, and show what is said.",
    "nodes": "List, show, drain and remove nodes.",
    "pools": "Show the nodes and free slots of each direction.",
    "rooms": "Create, list, show and close rooms, and invite to them.",
    "sample-node": "Run a node that says how long you spoke, and plays your voice back.",
    "serve": "Run one service, or all of them in one process, in the foreground.",
    "sessions": "List and show sessions.",
    "sim-nodes": "Run simulated nodes in one process, over real streams.",
    "speak": "Speak WAV files, or into a microphone with --mic, and show the translations.",
    "token": "Create and inspect tokens, which identify callers.",
    "top": "Show the scheduler live: load, latency, shortages, instances that are down.",
    "up": "Run everything on this machine: a Redis and all services.",
    "version": "Show the version, and what is installed.",
}

EPILOG = """\b
Exit codes:
  0  done
  1  failed
  2  wrong usage or a bad setting
  3  the service is unreachable, or its Redis is down
  4  not found
"""


class App(click.Group):
    """Loads command X from the module `lingua_scheduler.cli.commands.X`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load a command."""
        if cmd_name not in COMMANDS:
            return None
        prepare_grpc(cmd_name)
        name = cmd_name.replace("-", "_")
        module = importlib.import_module(f"lingua_scheduler.cli.commands.{name}")
        command = getattr(module, name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or name those that are spelled like it."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            # Click knows only commands that are loaded.
            from difflib import get_close_matches

            if found := get_close_matches(args[0], COMMANDS):
                names = " or ".join(f"'{each}'" for each in found)
                raise click.UsageError(f"{error.message} Did you mean {names}?", ctx) from None
            raise

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands."""
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
        """Run the command line and exit, with error messages instead of tracebacks."""
        args = list(sys.argv[1:] if args is None else args)
        # Needed even if the arguments cannot be parsed.
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


def _print_version(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value and not context.resilient_parsing:
        from lingua_scheduler.services.runtime.version import PACKAGE, version

        click.echo(f"{PACKAGE} {version()}")
        context.exit()


@click.group(
    cls=App,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@client_options("pool", "dispatcher", "gateway")
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_print_version,
    help="Show the version and exit.",
)
@click.pass_context
def app(context: click.Context) -> None:
    """The scheduler of a live, face-to-face speech translator.

    Settings come from LINGUA_ environment variables; 'lingua config' shows them.
    """
    context.color = colour_wanted()
