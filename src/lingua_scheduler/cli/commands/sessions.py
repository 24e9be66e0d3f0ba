"""`lingua sessions`: list, show."""

import click

from lingua_scheduler.cli.clients.gateway import GatewayClient
from lingua_scheduler.cli.options import Options, client_options, limit_option, pass_options
from lingua_scheduler.cli.views.output import plain, print_json
from lingua_scheduler.cli.views.session import session_list, session_page


@click.group()
def sessions() -> None:
    """List and show sessions."""


@sessions.command("list")
@click.option("--tenant", metavar="ID", default="", help="Only sessions of this tenant.")
@limit_option
@client_options("gateway")
@pass_options
def list_sessions(options: Options, tenant: str, limit: int) -> None:
    """List sessions, newest first, with the number of waiting utterances."""
    with GatewayClient.opened(options) as client:
        found, more = client.list_sessions(tenant=tenant, limit=limit)
    if options.json:
        print_json({"sessions": [plain(session) for session in found], "more": more})
        return
    if found:
        click.echo(session_list(found))
    else:
        click.echo("no sessions match" if tenant else "there are no sessions")
    if more:
        click.echo("There may be more: --limit shows them.", err=True)


@sessions.command()
@click.argument("session_id", metavar="SESSION")
@client_options("gateway")
@pass_options
def show(options: Options, session_id: str) -> None:
    """Show everything about a session. Closed sessions are forgotten."""
    with GatewayClient.opened(options) as client:
        response = client.get_session(session_id)
    if options.json:
        print_json(plain(response))
    else:
        click.echo(session_page(response.session))
