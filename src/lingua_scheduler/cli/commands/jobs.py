"""`lingua jobs`: list, show, cancel."""

import click

from lingua_scheduler.cli import filters
from lingua_scheduler.cli.clients.dispatcher import DispatcherClient
from lingua_scheduler.cli.failures import Failure
from lingua_scheduler.cli.options import Options, client_options, pass_options
from lingua_scheduler.cli.views.job import STATES, is_over, job_list, job_page, state_name
from lingua_scheduler.cli.views.output import plain, print_json
from lingua_scheduler.statuses import reason_name
from lingua_scheduler.v1 import common_pb2, dispatcher_pb2

_ERRORS = {
    reason_name(number): number
    for number in common_pb2.ErrorReason.values()
    if number != common_pb2.ERROR_REASON_UNSPECIFIED
}


@click.group()
def jobs() -> None:
    """List, show and cancel jobs."""


@jobs.command("list")
@click.option("--session", metavar="ID", default="", help="Only jobs of this session.")
@click.option("--node", metavar="ID", default="", help="Only jobs with an attempt on this node.")
@click.option(
    "--state",
    type=click.Choice(list(STATES), case_sensitive=False),
    help="Only jobs in this state.",
)
@click.option(
    "--pair",
    metavar="SRC:TGT",
    callback=filters.pair,
    help="Only jobs of this direction, such as zh:en.",
)
@click.option(
    "--error",
    metavar="REASON",
    type=click.Choice(list(_ERRORS), case_sensitive=False),
    help="Only jobs that failed for this reason, such as JOB_TIMEOUT.",
)
@click.option(
    "--since",
    "since_ms",
    metavar="TIME",
    callback=filters.since,
    help="Only jobs that changed within this time, such as 30s, 10m or 2h.",
)
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(1, 1_000_000),
    default=100,
    show_default=True,
    help="Stop after this many jobs: those that changed last.",
)
@client_options("dispatcher")
@pass_options
def list_jobs(
    options: Options,
    session: str,
    node: str,
    state: str | None,
    pair: common_pb2.LanguagePair | None,
    error: str | None,
    since_ms: int,
    limit: int,
) -> None:
    """List recent jobs, newest first, with their state and how long they took."""
    wanted = dispatcher_pb2.ListJobsRequest(
        session_id=session,
        node_id=node,
        state=STATES[state] if state else common_pb2.JOB_STATE_UNSPECIFIED,
        pair=pair,
        error=_ERRORS[error] if error else common_pb2.ERROR_REASON_UNSPECIFIED,
        changed_from_ms=since_ms,
    )
    has_filters = wanted.ByteSize() > 0
    with DispatcherClient.opened(options) as client:
        found, more = client.list_jobs(wanted, limit)
    if options.json:
        print_json({"jobs": [plain(job) for job in found], "more": more})
        return
    if found:
        click.echo(job_list(found))
    else:
        click.echo("no jobs match" if has_filters else "there are no recent jobs")
    if more:
        click.echo("There may be more: --limit shows them.", err=True)


@jobs.command()
@click.argument("job_id", metavar="JOB")
@client_options("dispatcher")
@pass_options
def show(options: Options, job_id: str) -> None:
    """Show everything about a job, and where its time went, step by step."""
    with DispatcherClient.opened(options) as client:
        response = client.get_job(job_id)
    if options.json:
        print_json(plain(response))
    else:
        click.echo(job_page(response))


@jobs.command()
@click.argument("job_id", metavar="JOB")
@click.option(
    "--why", metavar="TEXT", default="", help="The reason, for the node and the job's record."
)
@client_options("dispatcher")
@pass_options
def cancel(options: Options, job_id: str, why: str) -> None:
    """Cancel a job, and show its state.

    A finished job does not change. Only a job's home, the dispatcher that runs it, can cancel it.
    """
    with DispatcherClient.opened(options) as client:
        response = client.cancel_job(job_id, why)
    state = state_name(response.state)
    if not is_over(response.state):
        raise Failure(
            f"{job_id} was not cancelled and is {state}: this dispatcher is not its home. "
            f"'lingua jobs show {job_id}' names the home; select it with --dispatcher",
            reason="NOT_CANCELLED",
        )
    if options.json:
        print_json(plain(response))
    elif response.state == common_pb2.JOB_STATE_CANCELLED:
        click.echo(f"{job_id} is cancelled")
    else:
        click.echo(f"{job_id} had already ended: it is {state}")
