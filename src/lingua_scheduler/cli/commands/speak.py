"""`lingua speak`: sends WAV files or a microphone to a session and shows translations."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from lingua_scheduler.cli import event_loop, filters
from lingua_scheduler.cli.clients.gateway import GatewayClient
from lingua_scheduler.cli.colour import can_rewrite
from lingua_scheduler.cli.failures import Failure
from lingua_scheduler.cli.options import Command, Options, client_options, pass_options
from lingua_scheduler.cli.speak import microphone
from lingua_scheduler.cli.speak.direction_check import no_node_note
from lingua_scheduler.cli.speak.room_access import room_token_option
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
from lingua_scheduler.cli.speak.target import Target
from lingua_scheduler.cli.views.output import print_json
from lingua_scheduler.sdk import AudioFormat, SessionError
from lingua_scheduler.services.runtime.settings.settings import load_settings


def _language_option(flag: str, name: str, words: str, **how: Any) -> Callable[[Command], Command]:
    return click.option(flag, name, metavar="LANG", callback=filters.language, help=words, **how)


@click.command()
@click.argument(
    "files",
    metavar="FILE.wav...",
    nargs=-1,
    type=click.Path(exists=True, dir_okay=False, readable=True, path_type=Path),
)
@_language_option("--from", "src", "The spoken language, such as en.", required=True)
@_language_option("--to", "tgt", "The target language, such as es.")
@click.option(
    "--room",
    "room_id",
    metavar="ROOM",
    help="Speak to this room instead; its listeners choose the target languages.",
)
@room_token_option(whose="With --room: a speaker's token of the room, or the host's")
@click.option(
    "--name", metavar="TEXT", default="", help="With --room: your name, shown to listeners."
)
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
    tgt: str | None,
    room_id: str | None,
    room_token: str,
    name: str,
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

    With --room, says for each utterance in which languages listeners have it; 'lingua listen' shows
    the texts.
    """
    if mic == bool(files):
        raise click.UsageError("give either WAV files or --mic")
    target = Target(
        src=src,
        tgt=tgt,
        room_id=room_id,
        room_token=room_token,
        name=name,
        saves=save is not None,
        text_only=text_only,
        tenant=tenant,
    )
    device = microphone.open_device() if mic else None
    audio_format = AudioFormat() if mic else format_of_all(files)
    live = can_rewrite() and not options.json
    settings = load_settings()
    address = options.addresses.get("gateway") or settings.gateway_address
    session = target.session(
        address,
        settings,
        audio_format=audio_format,
        mic=mic,
        live=live,
        timeout_s=options.timeout_s,
    )
    folder = SpeechFolder(save) if save else None
    with GatewayClient.opened(options) as client:
        # Fails at once with the usual message; a session would retry for a while.
        client.reach()
    view = SpeechView(folder=folder, words=not options.json, live=live, silence=not mic)
    if tgt:
        view.say(no_node_note(options, settings, src=src, tgt=tgt, speech=not text_only))
    where = f"in room {room_id}" if room_id else f"at {address}"
    how = " (Ctrl-C ends it)" if mic else ""
    say: Say = functools.partial(
        say_files, files=files, pause_s=pause, fast=fast, spoken=view.spoken
    )
    if mic:
        say = functools.partial(say_all, source=microphone.hear(device, audio_format))
    elif vad:
        heard = files_as_heard(session, files, pause_s=pause, fast=fast)
        say = functools.partial(say_hands_free, source=heard)
    work = speak_into(
        session,
        say,
        opened=lambda: view.start(f"Session {session.session_id} {where}{how}"),
        hear=view.hear,
    )
    whole = False
    try:
        # With a microphone, the speaker decides when everything was said.
        whole = event_loop.run(work) or mic
    except SessionError as error:
        raise target.failure(error, address) from error
    finally:
        view.end()
        # For a lost session, print what came before; for one that never opened, nothing.
        if options.json and session.session_id:
            told = {"session_id": session.session_id, "whole": whole}
            print_json({**told, **view.document()})
    view.say(view.unsaved())
    if not options.json:
        click.echo(f"{view.summary()}{'' if whole else '; not everything was spoken'}.")
    _check_whole(view)


def _check_whole(view: SpeechView) -> None:
    """Fails if something that was said has no result."""
    count = len(view.missing) + len(view.lost) + len(view.incomplete)
    if count:
        language = " in some language" if view.incomplete else ""
        raise Failure(
            f"{count} utterance{' has' if count == 1 else 's have'} no result{language}",
            reason="MISSING_RESULTS",
        )
