"""`lingua sample-node`: a node to try the scheduler with."""

import logging
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lingua_scheduler.cli.child_options import (
    announce_ready,
    child_options,
    end_with_stdin,
    read_settings,
)
from lingua_scheduler.cli.failures import FAILED, USAGE, Failure
from lingua_scheduler.cli.options import Options, json_option, pass_options
from lingua_scheduler.services.runtime.settings.settings import Settings, load_settings

if TYPE_CHECKING:
    from lingua_scheduler.sdk import Node

# How often to check whether the node is connected.
_CHECK_S = 0.02


@click.command(name="sample-node")
@click.option("--id", "node_id", metavar="ID", default="sample", show_default=True)
@click.option(
    "--langs",
    metavar="LANG,..",
    default="en,es,zh,fr,de",
    show_default=True,
    help="Languages that it offers, each to each and to itself.",
)
@click.option("--slots", type=click.IntRange(1, 1000), default=2, show_default=True)
@click.option(
    "--dispatcher",
    metavar="ADDRESS[,..]",
    help="Addresses of the dispatchers (default: LINGUA_DISPATCHER_ADDRESS).",
)
@click.option(
    "--phrases",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    hidden=True,
    help="JSON file with the sentences that tones stand for.",
)
@child_options
@json_option
@pass_options
def sample_node(
    options: Options,
    /,
    node_id: str,
    langs: str,
    slots: int,
    dispatcher: str | None,
    phrases: Path | None,
    **child: bool,
) -> None:
    """Run a node that says how long you spoke, and plays your voice back.

    It recognises and translates nothing. Ctrl-C drains; a second one ends at once.
    """
    # Not at the top: `lingua --help` does not need gRPC.
    from lingua_scheduler.cli.clients.sdk_access import may_not, node_token, tls_of
    from lingua_scheduler.cli.sample_node.node import sample_node as make_node
    from lingua_scheduler.cli.sample_node.phrases import read_phrases
    from lingua_scheduler.sdk import NodeRefusedError

    if child["await_settings"] and not read_settings():
        return
    settings = load_settings()
    _configure_logs(settings)
    addresses = dispatcher or options.addresses.get("dispatcher") or settings.dispatcher_address
    try:
        node = make_node(
            node_id,
            [lang.strip() for lang in langs.split(",") if lang.strip()],
            slots,
            phrases=read_phrases(phrases) if phrases else (),
            token=node_token(settings, node_id),
            tls=tls_of(settings),
        )
        if child["until_eof"]:
            end_with_stdin()
        if child["announce"]:
            threading.Thread(target=_announce, args=(node,), daemon=True).start()
        node.run(addresses)
    except ValueError as error:
        raise Failure(str(error), reason="USAGE", exit_code=USAGE) from error
    except NodeRefusedError as error:
        hint = may_not(error.reason, "node")
        exit_code = USAGE if hint else FAILED
        raise Failure(f"{error}{hint}", reason=error.reason, exit_code=exit_code) from error


def _configure_logs(settings: Settings) -> None:
    if settings.log_format == "json":
        from lingua_scheduler.services.runtime.telemetry.logs import configure_logs

        configure_logs(settings, "sample-node")
        return
    # Messages of the SDK already contain their fields.
    logging.basicConfig(
        level=settings.log_level.upper(),
        format="%(asctime)s.%(msecs)03d %(levelname)-8s %(message)s",
        datefmt="%H:%M:%S",
    )


def _announce(node: "Node") -> None:
    while not node.connected:
        time.sleep(_CHECK_S)
    announce_ready(node.node_id)
