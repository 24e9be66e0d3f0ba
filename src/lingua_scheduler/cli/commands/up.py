"""`lingua up`: the whole scheduler on this machine, in the foreground."""

import os
import re
import shlex
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import click

from lingua_scheduler.cli.colour import can_rewrite
from lingua_scheduler.cli.failures import FAILED, Failure
from lingua_scheduler.cli.options import Options, json_option, pass_options, seconds_option
from lingua_scheduler.cli.up.console_page import console_url, console_words
from lingua_scheduler.cli.up.errors import InterruptedStartError, PartFailedError
from lingua_scheduler.cli.up.listening import reachable
from lingua_scheduler.cli.up.local_scheduler import SERVICES, LocalScheduler
from lingua_scheduler.cli.up.sample_nodes import demo_nodes
from lingua_scheduler.cli.up.screen import LineScreen, LiveScreen
from lingua_scheduler.cli.up.talk_page import TalkPage, talk_page
from lingua_scheduler.cli.views.output import print_json
from lingua_scheduler.cli.views.states import BUSY, GOOD, WARNING
from lingua_scheduler.cli.views.table import Column, fact_page, table
from lingua_scheduler.services.runtime.settings.settings import (
    Settings,
    load_settings,
    masked_url,
    variable_name,
)
from lingua_scheduler.services.runtime.version import PACKAGE, version

# Settings that callers need to be admitted.
_CALLERS = (
    "auth_secret_file",
    "token_file",
    "tls_ca_file",
    "tls_client_cert_file",
    "tls_client_key_file",
    "tls_server_name",
)
# If nothing better is known.
_MORE = "'lingua config' shows all settings; LINGUA_LOG_LEVEL=debug makes the services tell more"


@click.command()
@click.option(
    "--instances",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="Number of instances of each service.",
)
@click.option("--split", is_flag=True, help="Run each service in a process of its own.")
@click.option(
    "--demo",
    is_flag=True,
    help="Also run two sample nodes, which play back what you say, to try the talk page.",
)
@seconds_option
@json_option
@pass_options
def up(options: Options, instances: int, split: bool, demo: bool, seconds: float | None) -> None:
    """Run everything on this machine: a Redis and all services.

    Open the address after 'Talk' in a browser to speak. That needs nodes: --demo starts two that
    translate nothing, but say how long they heard you speak, and play your voice back. The address
    after 'Console' is the operators' console; if LINGUA_CONSOLE_LISTEN is empty, there is none.

    One process runs one instance of every service, as 'lingua serve all' does; with --split each
    has a process of its own. The Redis is that of LINGUA_REDIS_URL; without one, a server is
    started that ends with this command and keeps its data in LINGUA_REDIS_DIR, if that is set. A
    process that dies is started again at the same addresses. All of them log to stderr, with --demo
    only warnings unless LINGUA_LOG_LEVEL is set. With --json the addresses are one JSON document on
    stdout.
    """
    screen: LineScreen = LineScreen()
    scheduler = LocalScheduler(
        instances=instances,
        split=split,
        console=True,
        nodes=demo_nodes(load_settings()) if demo else (),
        # Otherwise log lines would hide the address of the page.
        environ={"LINGUA_LOG_LEVEL": "warning", **os.environ} if demo else None,
        on_log=lambda name, line: screen.log(name, line),
        on_note=lambda name, line: screen.note(name, line),
        on_ready=lambda part: screen.ready(part),
    )
    if can_rewrite() and not options.json:
        screen = LiveScreen(scheduler.parts)
    with screen, _signals(scheduler, screen):
        try:
            scheduler.start()
            if options.json:
                print_json(_document(scheduler))
            elif isinstance(screen, LiveScreen):
                screen.show(_page(scheduler, seconds, took_s=screen.follow(scheduler)))
            else:
                screen.show(_words(scheduler, seconds))
            scheduler.wait(seconds)
        except InterruptedStartError:
            pass
        except PartFailedError as error:
            raise Failure(
                error.message,
                reason="PART_FAILED",
                exit_code=error.exit_code,
                hint=error.hint,
                tip="" if error.hint else _MORE,
            ) from error
        finally:
            screen.ending()
            scheduler.stop()
    if not options.json:
        click.echo("Everything has ended.")


@contextmanager
def _signals(scheduler: LocalScheduler, screen: LineScreen) -> Iterator[None]:
    """In this block SIGINT and SIGTERM end `wait`; a second signal ends the process at once."""
    told = False

    def handle(_number: int, _frame: FrameType | None) -> None:
        nonlocal told
        if told:
            scheduler.kill()
            screen.killed()
            os._exit(FAILED)
        told = True
        screen.stopping()
        scheduler.interrupt()

    handled = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, handle) for number in handled}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _document(scheduler: LocalScheduler) -> dict[str, Any]:
    return {
        "talk": _page_document(talk_page(scheduler)),
        "console": {"url": url} if (url := console_url(scheduler)) else None,
        "redis": masked_url(scheduler.redis_url),
        "services": [
            {
                "service": each.service,
                "name": each.name,
                "address": each.address,
                "metrics": each.metrics,
                "web": each.web,
                "pid": each.pid,
            }
            for each in scheduler.services
        ],
        "nodes": [
            {"node_id": node_id, "pid": process.pid} for node_id, process in scheduler.nodes.items()
        ],
        "notes": scheduler.notes,
    }


def _page_document(page: TalkPage | None) -> dict[str, Any] | None:
    if page is None:
        return None
    return {"url": page.url, "lan_url": page.lan_url, "token_s": page.token_s}


def _words(scheduler: LocalScheduler, seconds: float | None) -> str:
    lines = _about(scheduler)
    name_width = max(len(each.name) for each in scheduler.services)
    width = max(len(each.address) for each in scheduler.services)
    tls = "s" if scheduler.settings.tls_cert_file else ""
    for each in scheduler.services:
        metrics = f"metrics http://{each.metrics}/metrics" if each.metrics else "metrics off"
        web = f"  web http{tls}://{reachable(each.web)}" if each.web else ""
        lines.append(f"{each.name:<{name_width}} {each.address:<{width}}  {metrics}{web}")
    lines += ["", "In another terminal:", *how_to_talk(scheduler), ""]
    return "\n".join([*lines, _how_it_ends(seconds)])


def _about(scheduler: LocalScheduler) -> list[str]:
    """What to know about each part: its name, then text, which may go on without a name."""
    page = talk_page(scheduler)
    lines = page.words if page else []
    if scheduler.nodes:
        lines.append(f"Nodes  {', '.join(scheduler.nodes)}, which translate nothing: they say how")
        lines.append("       long they heard you speak, and play your voice back")
    lines += console_words(scheduler)
    lines.append(f"Redis  {scheduler.redis_words}")
    return lines + [f"Note   {note}" for note in scheduler.notes]


def _how_it_ends(seconds: float | None) -> str:
    if seconds is None:
        return "Ctrl-C ends everything."
    return f"Everything ends after {seconds:g} s; Ctrl-C ends it now."


def _page(scheduler: LocalScheduler, seconds: float | None, *, took_s: float) -> str:
    """The same as `_words` for a person at a terminal: coloured, and fitted to its width."""
    head = click.style(f"{PACKAGE} {version()} is up", bold=True, fg=GOOD)
    about = [_named(line) for line in _about(scheduler)]
    tls = "s" if scheduler.settings.tls_cert_file else ""
    services = table(
        (Column("SERVICE"), Column("ADDRESS"), Column("METRICS", 1), Column("WEB", 2)),
        [
            (
                each.name,
                each.address,
                f"http://{each.metrics}/metrics" if each.metrics else "off",
                f"http{tls}://{reachable(each.web)}" if each.web else "",
            )
            for each in scheduler.services
        ],
    )
    other = [click.style("In another terminal:", bold=True), *how_to_talk(scheduler)]
    return "\n".join(
        [
            f"{head}, after {took_s:.1f} s",
            "",
            fact_page(about[0], about[1:]),
            "",
            services,
            "",
            *other,
            "",
            _how_it_ends(seconds),
        ]
    )


def _named(line: str) -> tuple[str, str]:
    """The name and the text of a line of `_about`."""
    name, _, text = line.partition(" ")
    text = re.sub(r"https?://\S+", lambda found: click.style(found[0], fg=BUSY), text.strip())
    return click.style(name, bold=True, fg=WARNING if name == "Note" else None), text


def how_to_talk(scheduler: LocalScheduler) -> list[str]:
    """The commands to try next, with the variables to export for them, one per line."""
    return [
        *exports(scheduler),
        *([] if scheduler.nodes else ["  lingua sim-nodes --count 3"]),
        "  lingua nodes list",
        "  lingua speak FILE.wav --from en --to es",
    ]


def exports(scheduler: LocalScheduler) -> list[str]:
    """The variables to export so that clients are admitted, one per line; often none."""
    lines = []
    for service in SERVICES:
        name, address = f"{service}_address", scheduler.addresses(service)
        default = Settings.model_fields[name].default
        if not address == default == getattr(scheduler.settings, name):
            lines.append(f"  export {variable_name(name)}={address}")
    for name in _CALLERS:
        if value := getattr(scheduler.settings, name):
            lines.append(f"  export {variable_name(name)}={shlex.quote(value)}")
    return lines
