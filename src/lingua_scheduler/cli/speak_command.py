"""`lingua speak`: WAV files into a session, translations out of it."""

import sys
from collections.abc import Callable
from pathlib import Path

import click

from lingua_scheduler.cli import event_loop
from lingua_scheduler.cli.failures import FAILED, UNREACHABLE, USAGE, Failure
from lingua_scheduler.cli.gateway_client import GatewayClient
from lingua_scheduler.cli.options import Command, Options, client_options, pass_options
from lingua_scheduler.cli.output import print_json
from lingua_scheduler.cli.speaking import speak as speak_files
from lingua_scheduler.cli.speech_files import SpeechFolder, format_of_all
from lingua_scheduler.cli.speech_view import SpeechView
from lingua_scheduler.sdk import (
    Session,
    SessionError,
    SessionRefusedError,
    SessionUnavailableError,
)
from lingua_scheduler.sdk.validate import check_language
from lingua_scheduler.services.runtime.settings import load_settings

# Often enough to look alive on a terminal.
_PARTIAL_EVERY_MS = 200
_NOBODY_THERE = ("UNREACHABLE", "SCHEDULER_DEPENDENCY_DOWN")


def _language(context: click.Context, parameter: click.Parameter, value: str) -> str:
    try:
        return check_language(parameter.opts[0], value)
    except ValueError as error:
        raise click.BadParameter(str(error).partition(": ")[2]) from None


def _language_option(flag: str, name: str, which: str) -> Callable[[Command], Command]:
    return click.option(
        flag,
        name,
        metavar="LANG",
        required=True,
        callback=_language,
        help=f"The language that is {which}, such as en.",
    )


@click.command()
@click.argument(
    "files",
    metavar="FILE.wav...",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, dir_okay=False, readable=True, path_type=Path),
)
@_language_option("--from", "src", "spoken")
@_language_option("--to", "tgt", "wanted")
@click.option("--fast", is_flag=True, help="Not at the pace of speech, but as fast as it goes.")
@click.option(
    "--pause",
    metavar="SECONDS",
    type=click.FloatRange(min=0),
    help="Be silent for so long between files, where else each is said to be finished.",
)
@click.option(
    "--save",
    "--save-speech",
    "save",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write the translated speech of each utterance to a WAV file in this folder.",
)
@click.option("--text-only", is_flag=True, help="Ask for text alone, not for speech.")
@click.option("--tenant", metavar="ID", default="", help="Whose session it is.")
@client_options("gateway")
@pass_options
def speak(
    options: Options,
    files: tuple[Path, ...],
    src: str,
    tgt: str,
    fast: bool,
    pause: float | None,
    save: Path | None,
    text_only: bool,
    tenant: str,
) -> None:
    """Speak WAV files into a session, and show the translations.

    Files are sent at the pace of speech, one after the other, each an utterance or, where it is
    long, several. Ctrl-C ends the speech: what was said is still translated. Fails where an
    utterance is missing at the end. --timeout is how long it looks for a gateway.
    """
    if save and text_only:
        raise click.UsageError("--save needs speech, and --text-only asks for none")
    audio_format = format_of_all(files)
    live = sys.stdout.isatty() and not options.json
    address = options.addresses.get("gateway") or load_settings().gateway_address
    try:
        session = Session(
            address,
            src=src,
            tgt=tgt,
            audio_format=audio_format,
            require_tts=not text_only,
            partial_interval_ms=_PARTIAL_EVERY_MS if live else 0,
            tenant=tenant,
            reconnect_seconds=options.timeout_s,
        )
    except ValueError as error:
        raise Failure(str(error), reason="USAGE", exit_code=USAGE) from None
    folder = SpeechFolder(save) if save else None
    with GatewayClient.opened(options) as client:
        # It fails at once, and in the words of all commands; a session would try for a while.
        client.reach()
    view = SpeechView(folder=folder, words=not options.json, live=live)
    work = speak_files(
        session,
        files,
        pause_s=pause,
        fast=fast,
        opened=lambda: view.start(f"Session {session.session_id} at {address}"),
        hear=view.hear,
    )
    whole = False
    try:
        whole = event_loop.run(work)
    except SessionError as error:
        raise _failure(error, address) from error
    finally:
        view.end()
        # Of a session that was lost, what came before; of one that never was, nothing.
        if options.json and session.session_id:
            told = {"session_id": session.session_id, "whole": whole}
            print_json({**told, **view.document()})
    if not options.json:
        click.echo(f"{view.summary()}{'' if whole else '; not all was spoken'}.")
    if view.missing:
        count = len(view.missing)
        raise Failure(
            f"{count} utterance{' has' if count == 1 else 's have'} no result",
            reason="MISSING_RESULTS",
        )


def _failure(error: SessionError, address: str) -> Failure:
    """Words and the exit code for a session that could not be opened, or was lost."""
    if isinstance(error, SessionUnavailableError):
        message = (
            f"no session at {address}: {error.message}. 'lingua up' starts a gateway; --gateway or "
            "LINGUA_GATEWAY_ADDRESS says where it is, --timeout gives it more time"
        )
    elif isinstance(error, SessionRefusedError):
        message = f"the session gateway at {address} refuses this session: {error.message}"
    else:
        message = f"the session was lost: {error.message}"
    exit_code = FAILED
    if error.reason in _NOBODY_THERE:
        exit_code = UNREACHABLE
    elif error.reason == "INVALID_MESSAGE":
        exit_code = USAGE
    return Failure(message, reason=error.reason, exit_code=exit_code)
