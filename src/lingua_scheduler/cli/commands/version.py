"""`lingua version`: the version, and what is installed."""

import platform
from importlib import metadata, util

import click

from lingua_scheduler.cli.options import Options, json_option, pass_options
from lingua_scheduler.cli.views.output import print_json
from lingua_scheduler.services.runtime.version import PACKAGE
from lingua_scheduler.services.runtime.version import version as own_version

# One of the packages that only the services need.
_OF_SERVICES = "redis"


@click.command()
@json_option
@pass_options
def version(options: Options) -> None:
    """Show the version, and what is installed."""
    has_services = util.find_spec(_OF_SERVICES) is not None
    versions = {
        PACKAGE: own_version(),
        "Python": platform.python_version(),
        "grpcio": metadata.version("grpcio"),
        "protobuf": metadata.version("protobuf"),
    }
    if options.json:
        print_json({"versions": versions, "services": has_services})
        return
    for name, number in versions.items():
        click.echo(f"{name:<17} {number}")
    hint = "installed" if has_services else f"not installed: pip install '{PACKAGE}[server]'"
    click.echo(f"{'services':<17} {hint}")
