"""`lingua cells`: list, drain, ready."""

import click

from lingua_scheduler.cli.clients.pool import PoolClient
from lingua_scheduler.cli.options import Options, client_options, pass_options
from lingua_scheduler.cli.views.cell import cell_list, contents
from lingua_scheduler.cli.views.output import plain, print_json
from lingua_scheduler.v1 import pool_pb2

_NUMBER = click.IntRange(0, 999)


@click.group(invoke_without_command=True)
@client_options("pool")
@pass_options
@click.pass_context
def cells(context: click.Context, options: Options) -> None:
    """List cells, drain them and make them ready.

    A cell is a part of the state of the scheduler, on one Redis (LINGUA_CELLS).
    """
    if context.invoked_subcommand is None:
        _list(options)


@cells.command("list")
@client_options("pool")
@pass_options
def list_cells(options: Options) -> None:
    """List cells with their state, their Redis and what they have. The default.

    A drained cell can be taken out when it has no sessions, rooms and nodes, and only the last one
    can be.
    """
    _list(options)


def _list(options: Options) -> None:
    with PoolClient.opened(options) as client:
        response = client.list_cells()
    if options.json:
        print_json(plain(response))
    else:
        click.echo(cell_list(response.cells))


@cells.command()
@click.argument("number", metavar="CELL", type=_NUMBER)
@client_options("pool")
@pass_options
def drain(options: Options, number: int) -> None:
    """Put nothing new into a cell, and move its nodes to others, until 'lingua cells ready'.

    Sessions and rooms stay until they end.
    """
    cell = _set(options, number, pool_pb2.CELL_STATE_DRAINING)
    if cell is not None:
        click.echo(
            f"cell {number} is drained: it gets no new sessions, rooms and nodes, "
            f"and has {contents(cell)}"
        )


@cells.command()
@click.argument("number", metavar="CELL", type=_NUMBER)
@client_options("pool")
@pass_options
def ready(options: Options, number: int) -> None:
    """Let a new or drained cell take sessions, rooms and nodes."""
    if _set(options, number, pool_pb2.CELL_STATE_READY) is not None:
        click.echo(f"cell {number} is ready: it gets sessions, rooms and nodes")


def _set(
    options: Options, number: int, state: pool_pb2.CellState.ValueType
) -> pool_pb2.Cell | None:
    """Changes the state of a cell. Returns the cell, or None if it was printed as JSON."""
    with PoolClient.opened(options) as client:
        response = client.set_cell_state(number, state)
    if options.json:
        print_json(plain(response))
        return None
    return response.cell
