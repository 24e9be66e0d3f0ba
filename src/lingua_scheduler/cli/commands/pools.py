"""`lingua pools`: nodes and free slots by direction."""

from collections.abc import Sequence

import click

from lingua_scheduler.cli.clients.pool import PoolClient
from lingua_scheduler.cli.options import Options, client_options, pass_options
from lingua_scheduler.cli.views.output import plain, print_json, terminal_width
from lingua_scheduler.cli.views.table import Column, aligned, table
from lingua_scheduler.v1 import pool_pb2

_NONE = "-"


@click.command()
@click.option("--src", metavar="LANG", default="", help="Only directions from this language.")
@click.option("--tgt", metavar="LANG", default="", help="Only directions into this language.")
@click.option("--text", is_flag=True, help="Show pools for text jobs instead of speech jobs.")
@click.option(
    "--list",
    "as_list",
    is_flag=True,
    help="Print one direction per line, even if the matrix would fit.",
)
@client_options("pool")
@pass_options
def pools(options: Options, src: str, tgt: str, text: bool, as_list: bool) -> None:
    """Show the nodes and free slots of each direction.

    Prints a matrix of source and target languages, or a list if that would be too wide. In text
    pools, * means any language.
    """
    with PoolClient.opened(options) as client:
        found, more = client.list_pools(src, tgt, text)
    if options.json:
        print_json({"pools": [plain(pool) for pool in found], "more": more})
        return
    if not found:
        click.echo(f"no {'text' if text else 'speech'} pools{' match' if src or tgt else ''}")
    else:
        click.echo(render_pools(found, width=0 if as_list else terminal_width()))
    if more:
        click.echo("There may be more: --src and --tgt narrow the choice.", err=True)


def render_pools(pools: Sequence[pool_pb2.Pool], *, width: int) -> str:
    """The pools as a matrix, or as a list if the matrix is wider than `width`."""
    matrix = _matrix(pools)
    widest = max(len(click.unstyle(line)) for line in matrix.splitlines())
    if widest > width:
        return _list(pools)
    return f"{matrix}\n\nEach cell: nodes, then free/all slots of the ready ones."


def _matrix(pools: Sequence[pool_pb2.Pool]) -> str:
    targets = sorted({pool.pair.tgt for pool in pools})
    cells = {
        (pool.pair.src, pool.pair.tgt): f"{pool.nodes}  {pool.free_slots}/{pool.slots}"
        for pool in pools
    }
    rows = [
        [src, *(cells.get((src, tgt), _NONE) for tgt in targets)]
        for src in sorted({pool.pair.src for pool in pools})
    ]
    # Cells contain a gap, so the columns need a wider one.
    return aligned(["SRC\\TGT", *targets], rows, gap=4)


def _list(pools: Sequence[pool_pb2.Pool]) -> str:
    return table(
        (Column("SRC"), Column("TGT"), Column("NODES"), Column("READY"), Column("FREE/SLOTS")),
        [
            (
                pool.pair.src,
                pool.pair.tgt,
                str(pool.nodes),
                str(pool.ready_nodes),
                f"{pool.free_slots}/{pool.slots}",
            )
            for pool in pools
        ],
    )
