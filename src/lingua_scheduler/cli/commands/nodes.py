"""`lingua nodes`: list, show, drain, ready, remove."""

import math
import sys
import time

import click

from lingua_scheduler.cli import filters
from lingua_scheduler.cli.clients.pool import PoolClient
from lingua_scheduler.cli.colour import can_rewrite
from lingua_scheduler.cli.failures import Failure
from lingua_scheduler.cli.options import Options, client_options, pass_options
from lingua_scheduler.cli.views.node import drain_progress, node_list, node_page
from lingua_scheduler.cli.views.output import plain, print_json
from lingua_scheduler.v1 import common_pb2, pool_pb2

# How often 'drain --wait' asks.
_POLL_S = 1.0

_HEALTHS = {
    "ready": common_pb2.NODE_HEALTH_READY,
    "degraded": common_pb2.NODE_HEALTH_DEGRADED,
    "draining": common_pb2.NODE_HEALTH_DRAINING,
    "offline": common_pb2.NODE_HEALTH_OFFLINE,
}


@click.group()
def nodes() -> None:
    """List, show, drain and remove nodes."""


@nodes.command("list")
@click.option(
    "--health",
    type=click.Choice(list(_HEALTHS), case_sensitive=False),
    help="Only nodes with this health.",
)
@click.option(
    "--pair",
    metavar="SRC:TGT",
    callback=filters.pair,
    help="Only nodes that serve this direction, such as zh:en.",
)
@client_options("pool")
@pass_options
def list_nodes(options: Options, health: str | None, pair: common_pb2.LanguagePair | None) -> None:
    """List nodes with their health, slots and load."""
    wanted = _HEALTHS[health] if health else common_pb2.NODE_HEALTH_UNSPECIFIED
    with PoolClient.opened(options) as client:
        response = client.list_nodes(wanted, pair)
    if options.json:
        # All pages were merged, so there is no page token.
        print_json({"nodes": plain(response)["nodes"]})
    elif response.nodes:
        click.echo(node_list(response.nodes))
    else:
        click.echo("no nodes match" if health or pair else "there are no nodes")


@nodes.command()
@click.argument("node_id", metavar="ID")
@client_options("pool")
@pass_options
def show(options: Options, node_id: str) -> None:
    """Show everything about a node, and the jobs it runs."""
    with PoolClient.opened(options) as client:
        response = client.get_node(node_id)
    if options.json:
        print_json(plain(response))
    else:
        click.echo(node_page(response))


@nodes.command()
@click.argument("node_id", metavar="ID")
@click.option("--wait", is_flag=True, help="Wait until the node has no jobs, and show how many.")
@click.option(
    "--within",
    metavar="SECONDS",
    type=click.FloatRange(min=0, min_open=True),
    help="With --wait: fail if it still has jobs after this time (default: wait for ever).",
)
@client_options("pool")
@pass_options
def drain(options: Options, node_id: str, wait: bool, within: float | None) -> None:
    """Give a node no new jobs until 'lingua nodes ready'."""
    if within is not None and not wait:
        raise click.UsageError("--within needs --wait")
    with PoolClient.opened(options) as client:
        node = client.set_node_health(node_id, common_pb2.NODE_HEALTH_DRAINING).node
        if wait:
            node = _until_empty(client, node, within, quiet=options.json)
    if options.json:
        print_json(plain(pool_pb2.SetNodeHealthResponse(node=node)))
        return
    left = node.reserved + node.running
    rest = "has none now" if left == 0 else f"still has {left}"
    click.echo(f"{node_id} is drained: it gets no new jobs and {rest}")


def _until_empty(
    client: PoolClient, node: pool_pb2.Node, within_s: float | None, *, quiet: bool
) -> pool_pb2.Node:
    """Shows the progress of a drain until it is complete, and returns the node as it is then."""
    # Not at the top: it loads rich, which no other command on nodes needs.
    from lingua_scheduler.cli.views.live_line import LiveLine

    ends = math.inf if within_s is None else time.monotonic() + within_s
    line = LiveLine(shown=can_rewrite() and not quiet)
    # Not used_slots, which services of an earlier version do not set.
    while left := node.reserved + node.running:
        line.show(f"{node.node_id}: {drain_progress(node)}")
        pause = min(_POLL_S, ends - time.monotonic())
        if pause <= 0:
            line.clear()
            raise Failure(
                f"{node.node_id} is not empty after {within_s:g} s "
                f"(slots in use: {left}); it stays drained",
                reason="TIMEOUT",
            )
        time.sleep(pause)
        node = client.get_node(node.node_id).node
        if not node.drained_by_operator:
            line.clear()
            raise Failure(
                f"somebody has ended the drain of {node.node_id}: it gets jobs again",
                reason="NOT_DRAINED",
            )
    line.clear()
    return node


@nodes.command()
@click.argument("node_id", metavar="ID")
@client_options("pool")
@pass_options
def ready(options: Options, node_id: str) -> None:
    """Let a drained node take jobs again."""
    with PoolClient.opened(options) as client:
        response = client.set_node_health(node_id, common_pb2.NODE_HEALTH_READY)
    if options.json:
        print_json(plain(response))
        return
    health = {number: name for name, number in _HEALTHS.items()}.get(response.node.health, "")
    if response.node.health == common_pb2.NODE_HEALTH_READY:
        click.echo(f"{node_id} is ready: it gets jobs")
    else:
        click.echo(f"{node_id} is no longer drained, but it is {health}: it gets no jobs yet")


@nodes.command()
@click.argument("node_id", metavar="ID")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@client_options("pool")
@pass_options
def remove(options: Options, node_id: str, yes: bool) -> None:
    """Remove a node from all pools and forget it.

    A connected node returns when its dispatcher registers it again; use 'drain' to keep it out.
    """
    if not yes:
        if not _can_ask():
            raise click.UsageError(
                "there is no terminal for a confirmation: add --yes to remove the node"
            )
        click.confirm(f"Remove {node_id}?", abort=True, err=True)
    with PoolClient.opened(options) as client:
        response = client.remove_node(node_id)
    if options.json:
        print_json(plain(response))
    else:
        click.echo(f"{node_id} is removed; it was in {response.pools_left} pools")


def _can_ask() -> bool:
    return sys.stdin.isatty()
