"""`lingua speak`: sends WAV files or a microphone to a session and shows translations."""

import functools
import sys
from collections.abc import Callable
from pathlib import Path

import click

from lingua_scheduler.cli import event_loop
from lingua_scheduler.cli.clients.gateway import GatewayClient
from lingua_scheduler.cli.clients.sdk_access import client_token, may_not, tls_of
from lingua_scheduler.cli.failures import FAILED, UNREACHABLE, USAGE, Failure
from lingua_scheduler.cli.options import Command, Options, client_options, pass_options
from lingua_scheduler.cli.speak import microphone
from lingua_scheduler.cli.speak.direction_check import no_node_note
from lingua_scheduler.cli.speak.speaking import (
    Say,
    files_as_heard,
    say_all,
    say_files,
    say_hands_free,
)
from lingua_scheduler.cli.speak.speaking import speak as speak_into
from lingua_scheduler.cli.speak.speech_files import SpeechFolder, format_of_all
from lingua_scheduler.cli.speak.speech_view import SpeechView
from lingua_scheduler.cli.views.output import print_json
from lingua_scheduler.sdk import (
    AudioFormat,
    PauseDetection,
    Session,
    SessionError,
    SessionRefusedError,
    SessionUnavailableError,
)
from lingua_scheduler.sdk.validate import check_language
from lingua_scheduler.services.runtime.settings.settings import load_settings

# Often enough to look alive on a terminal.
_PARTIAL_EVERY_MS = 200
_UNREACHABLE_REASONS = ("UNREACHABLE", "SCHEDULER_DEPENDENCY_DOWN")
_USAGE_REASONS = ("INVALID_MESSAGE", "UNAUTHENTICATED", "PERMISSION_DENIED")


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
        help=f"The {which} language, such as en.",
    )


@click.command()
@click.argument(
    "files",
    metavar="FILE.wav...",
    nargs=-1,
    type=click.Path(exists=True, dir_okay=False, readable=True, path_type=Path),
)
@_language_option("--from", "src", "spoken")
@_language_option("--to", "tgt", "target")
@click.option("--mic", is_flag=True, help="Use the microphone instead, hands-free.")
@click.option(
    "--vad", is_flag=True, help="Send only the speech in the files; each silence ends an utterance."
)
@click.option(
    "--fast", is_flag=True, help="Send as fast as possible instead of at the pace of speech."
)
@click.option(
    "--pause",
    metavar="SECONDS",
    type=click.FloatRange(min=0),
    help="Wait in silence between files instead of finishing the utterance after each.",
)
@click.option(
    "--save",
    "--save-speech",
    "save",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write the translated speech of each utterance to a WAV file in this folder.",
)
@click.option("--text-only", is_flag=True, help="Request only text, no speech.")
@click.option("--tenant", metavar="ID", default="", help="The tenant of the session.")
@client_options("gateway")
@pass_options
def speak(
    options: Options,
    files: tuple[Path, ...],
    src: str,
    tgt: str,
    mic: bool,
    vad: bool,
    fast: bool,
    pause: float | None,
    save: Path | None,
    text_only: bool,
    tenant: str,
) -> None:
    """Speak WAV files, or into a microphone with --mic, and show the translations.

    Files are sent one after the other at the pace of speech, each as one utterance, or several if
    it is long. Ctrl-C ends the speech; what was said is still translated. Fails if an utterance is
    missing or lost. --timeout limits the search for a gateway.
    """
    if save and text_only:
        raise click.UsageError("--save needs speech, but --text-only requests none")
    if mic == bool(files):
        raise click.UsageError("give either WAV files or --mic")
    device = microphone.open_device() if mic else None
    audio_format = AudioFormat() if mic else format_of_all(files)
    live = sys.stdout.isatty() and not options.json
    settings = load_settings()
    address = options.addresses.get("gateway") or settings.gateway_address
    try:
        session = Session(
            address,
            src=src,
            tgt=tgt,
            audio_format=audio_format,
            require_tts=not text_only,
            partial_interval_ms=_PARTIAL_EVERY_MS if live else 0,
            # A microphone never stops sending.
            pause_detection=PauseDetection.VOICE_ACTIVITY if mic else PauseDetection.GAPS,
            tenant=tenant,
            tls=tls_of(settings),
            token=client_token(settings, tenant),
            reconnect_seconds=options.timeout_s,
        )
    except ValueError as error:
        raise Failure(str(error), reason="USAGE", exit_code=USAGE) from None
    folder = SpeechFolder(save) if save else None
    with GatewayClient.opened(options) as client:
        # Fails at once with the usual message; a session would retry for a while.
        client.reach()
    view = SpeechView(folder=folder, words=not options.json, live=live, silence=not mic)
    view.say(no_node_note(options, settings, src=src, tgt=tgt, speech=not text_only))
    how = " (Ctrl-C ends it)" if mic else ""
    say: Say = functools.partial(say_files, files=files, pause_s=pause, fast=fast)
    if mic:
        say = functools.partial(say_all, source=microphone.hear(device, audio_format))
    elif vad:
        heard = files_as_heard(session, files, pause_s=pause, fast=fast)
        say = functools.partial(say_hands_free, source=heard)
    work = speak_into(
        session,
        say,
        opened=lambda: view.start(f"Session {session.session_id} at {address}{how}"),
        hear=view.hear,
    )
    whole = False
    try:
        # With a microphone, the speaker decides when everything was said.
        whole = event_loop.run(work) or mic
    except SessionError as error:
        raise _failure(error, address) from error
    finally:
        view.end()
        # For a lost session, print what came before; for one that never opened, nothing.
        if options.json and session.session_id:
            told = {"session_id": session.session_id, "whole": whole}
            print_json({**told, **view.document()})
    view.say(view.unsaved())
    if not options.json:
        click.echo(f"{view.summary()}{'' if whole else '; not everything was spoken'}.")
    if view.missing or view.lost:
        count = len(view.missing) + len(view.lost)
        raise Failure(
            f"{count} utterance{' has' if count == 1 else 's have'} no result",
            reason="MISSING_RESULTS",
        )


def _failure(error: SessionError, address: str) -> Failure:
    """The failure for a session that could not be opened or was lost."""
    if error.reason == "QUOTA_EXCEEDED":
        message = f"the session gateway at {address} has no room for this tenant: {error.message}"
    elif error.reason == "SCHEDULER_DEPENDENCY_DOWN":
        message = f"the session gateway at {address} cannot serve now: {error.message}"
    elif isinstance(error, SessionUnavailableError):
        message = (
            f"no session at {address}: {error.message}. 'lingua up' starts a gateway; --gateway or "
            "LINGUA_GATEWAY_ADDRESS sets its address, --timeout allows more time"
        )
    elif isinstance(error, SessionRefusedError):
        message = f"the session gateway at {address} refuses this session: {error.message}"
    else:
        message = f"the session was lost: {error.message}"
    message += may_not(error.reason, "client")
    exit_code = FAILED
    if error.reason in _UNREACHABLE_REASONS:
        exit_code = UNREACHABLE
    elif error.reason in _USAGE_REASONS:
        exit_code = USAGE
    return Failure(message, reason=error.reason, exit_code=exit_code)
