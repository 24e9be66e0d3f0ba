"""`lingua instances`: list, settings."""

import click

from lingua_scheduler.cli.clients.pool import PoolClient
from lingua_scheduler.cli.options import Options, client_options, pass_options
from lingua_scheduler.cli.views.instance import instance_list, setting_list
from lingua_scheduler.cli.views.output import plain, print_json
from lingua_scheduler.services.runtime.settings.comparison import compare


@click.group(invoke_without_command=True)
@client_options("pool")
@pass_options
@click.pass_context
def instances(context: click.Context, options: Options) -> None:
    """List the instances of all services, and compare their settings.

    An instance that died is listed as down for ten minutes.
    """
    if context.invoked_subcommand is None:
        _list(options)


@instances.command("list")
@client_options("pool")
@pass_options
def list_instances(options: Options) -> None:
    """List instances with their version, health and counters. The default."""
    _list(options)


def _list(options: Options) -> None:
    with PoolClient.opened(options) as client:
        response = client.list_instances(with_settings=False)
    if options.json:
        document = plain(response)
        for each in document["instances"]:
            # They were not asked for; an empty list would look like an answer.
            del each["settings"]
        print_json(document)
    else:
        click.echo(instance_list(response) if response.instances else "there are no instances")


@instances.command()
@click.option(
    "--differences", is_flag=True, help="Only settings that are not the same for all instances."
)
@client_options("pool")
@pass_options
def settings(options: Options, differences: bool) -> None:
    """Show the settings in force at each instance. Passwords are masked."""
    with PoolClient.opened(options) as client:
        response = client.list_instances(with_settings=True)
    compared = [each for each in compare(response.instances) if each.differs or not differences]
    unknown = [each.instance_id for each in response.instances if not each.settings]
    if options.json:
        rows = [
            {**each._asdict(), "values": [value._asdict() for value in each.values]}
            for each in compared
        ]
        print_json({"settings": rows, "unknown_of": unknown})
        return
    if compared:
        click.echo(setting_list(compared))
    else:
        click.echo("all instances have the same settings" if differences else "no settings")
    if unknown:
        some = "1 instance" if len(unknown) == 1 else f"{len(unknown)} instances"
        click.echo(f"The settings of {some} are not known: {' '.join(unknown)}", err=True)
