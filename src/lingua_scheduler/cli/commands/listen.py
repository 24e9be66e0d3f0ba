"""`lingua listen`: listens to a room and shows what is said."""

from pathlib import Path

import click

from lingua_scheduler.cli import event_loop, filters
from lingua_scheduler.cli.clients.gateway import GatewayClient
from lingua_scheduler.cli.clients.sdk_access import tls_of
from lingua_scheduler.cli.failures import USAGE, Failure
from lingua_scheduler.cli.options import Options, client_options, pass_options, seconds_option
from lingua_scheduler.cli.speak.heard_view import HeardView
from lingua_scheduler.cli.speak.listening import listen as listen_to
from lingua_scheduler.cli.speak.room_access import not_let_in, room_token_option
from lingua_scheduler.cli.speak.speech_files import SpeechFolder
from lingua_scheduler.cli.views.output import one_line
from lingua_scheduler.sdk import Room, RoomError
from lingua_scheduler.services.runtime.settings.settings import load_settings


@click.command()
@click.option("--room", "room_id", metavar="ROOM", required=True, help="The room's id.")
@room_token_option(required=True)
@click.option(
    "--language",
    metavar="LANG",
    required=True,
    callback=filters.language,
    help="The language to listen to, such as es.",
)
@click.option("--name", metavar="TEXT", default="", help="Your name, for the list of members.")
@click.option(
    "--speech-dir",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write the speech of each utterance to a WAV file in this folder.",
)
@click.option(
    "--original",
    is_flag=True,
    help="With --speech-dir: write the speakers' own audio instead of the translated speech.",
)
@seconds_option
@client_options("gateway")
@pass_options
def listen(
    options: Options,
    room_id: str,
    room_token: str,
    language: str,
    name: str,
    speech_dir: Path | None,
    original: bool,
    seconds: float | None,
) -> None:
    """Listen to a room in a language, and show what is said.

    Shows the last captions first, then each utterance as it comes, until the room is closed or
    Ctrl-C leaves it. With --json, each event is a JSON object on a line of its own. If the
    connection breaks, it continues where it was, for up to five minutes.
    """
    if original and speech_dir is None:
        raise click.UsageError("--original needs --speech-dir, where the audio is written")
    settings = load_settings()
    address = options.addresses.get("gateway") or settings.gateway_address
    try:
        listener = Room(
            address,
            room_id=room_id,
            token=room_token,
            tls=tls_of(settings),
        ).listen(
            language=language,
            speech=speech_dir is not None and not original,
            original_audio=original,
            name=name,
        )
    except ValueError as error:
        raise Failure(str(error), reason="USAGE", exit_code=USAGE) from None
    folder = SpeechFolder(speech_dir, option="--speech-dir") if speech_dir else None
    with GatewayClient.opened(options) as client:
        # Fails at once with the usual message; a listener would retry for a while.
        client.reach()
    view = HeardView(folder=folder, original=original, as_json=options.json)

    def joined() -> None:
        named = f" ({one_line(listener.room.name)})" if listener.room.name else ""
        view.start(f"Listening to room {room_id}{named} in {language} (Ctrl-C leaves it)")

    work = listen_to(listener, joined=joined, hear=view.hear, seconds=seconds)
    try:
        event_loop.run(work)
    except RoomError as error:
        raise not_let_in(error, room_id=room_id, role="listener", address=address) from error
    if not options.json:
        click.echo(view.summary(closed=listener.room_closed))
