"""`lingua rooms`: create, token, list, show, close."""

from collections.abc import Callable

import click

from lingua_scheduler.cli import filters
from lingua_scheduler.cli.clients.gateway import GatewayClient
from lingua_scheduler.cli.failures import Failure
from lingua_scheduler.cli.options import (
    Command,
    Options,
    client_options,
    limit_option,
    pass_options,
)
from lingua_scheduler.cli.speak.room_access import (
    HOST_VARIABLE,
    ROOM_VARIABLE,
    host_token_option,
    room_token_option,
)
from lingua_scheduler.cli.views.output import moment, one_line, plain, print_json
from lingua_scheduler.cli.views.room import room_list, room_page
from lingua_scheduler.v1 import rooms_pb2

_POLICIES = {
    "invited": rooms_pb2.SPEAK_POLICY_INVITED,
    "anyone": rooms_pb2.SPEAK_POLICY_ANYONE,
}
_ROLES = {
    "listener": rooms_pb2.ROOM_ROLE_LISTENER,
    "speaker": rooms_pb2.ROOM_ROLE_SPEAKER,
}


def _limit_option(flag: str, most: int, what: str) -> Callable[[Command], Command]:
    return click.option(
        flag,
        metavar="N",
        type=click.IntRange(0, most),
        default=0,
        help=f"{what} (default, and at most: the setting of the gateway).",
    )


@click.group()
def rooms() -> None:
    """Create, list, show and close rooms, and invite to them.

    In a room some speak and many listen, each in the language of their choice: 'lingua speak
    --room' and 'lingua listen'.
    """


@rooms.command()
@click.option("--name", metavar="TEXT", default="", help="Its name, for people.")
@click.option(
    "--language",
    "languages",
    metavar="LANG",
    multiple=True,
    callback=filters.languages,
    help="A language that members may speak and listen to; may be repeated (default: any).",
)
@click.option(
    "--speak",
    type=click.Choice(list(_POLICIES)),
    default="invited",
    show_default=True,
    help="Who may speak: holders of a speaker's token, or of any token of the room.",
)
@_limit_option("--max-members", 1_000_000, "Speakers and listeners together")
@_limit_option("--max-speakers", 10_000, "Speakers at the same time")
@_limit_option("--max-languages", 1000, "Languages that are listened to at the same time")
@click.option("--tenant", metavar="ID", default="", help="The tenant of the room.")
@client_options("gateway")
@pass_options
def create(
    options: Options,
    name: str,
    languages: tuple[str, ...],
    speak: str,
    max_members: int,
    max_speakers: int,
    max_languages: int,
    tenant: str,
) -> None:
    """Create a room; print its tokens, and commands to speak and to listen."""
    request = rooms_pb2.CreateRoomRequest(
        options=rooms_pb2.RoomOptions(
            name=name,
            languages=languages,
            speak=_POLICIES[speak],
            max_members=max_members,
            max_speakers=max_speakers,
            max_languages=max_languages,
        ),
        tenant=tenant,
    )
    with GatewayClient.opened(options) as client:
        made = client.create_room(request)
        tokens = {
            role: client.create_join_token(
                rooms_pb2.CreateJoinTokenRequest(
                    room_id=made.room.room_id, host_token=made.host_token, role=number
                )
            )
            for role, number in _ROLES.items()
        }
    if options.json:
        told = {f"{role}_token": token.join_token for role, token in tokens.items()}
        print_json({**plain(made), **told, "expires_ms": tokens["listener"].expires_ms})
        return
    room_id = made.room.room_id
    to = f" --gateway {options.addresses['gateway']}" if "gateway" in options.addresses else ""
    hears = next(iter(languages[1:] or languages), "es")
    speaks = next(iter(languages), "en")
    named = f" ({one_line(made.room.options.name)})" if made.room.options.name else ""
    for line in (
        f"Created room {room_id}{named}",
        "",
        f"The host's token ({HOST_VARIABLE}) makes tokens for others and closes the room:",
        f"  {made.host_token}",
        "",
        f"To listen, until {moment(tokens['listener'].expires_ms)}:",
        f"  export {ROOM_VARIABLE}={tokens['listener'].join_token}",
        f"  lingua listen --room {room_id} --language {hears}{to}",
        "",
        "To speak, as long:",
        f"  export {ROOM_VARIABLE}={tokens['speaker'].join_token}",
        f"  lingua speak FILE.wav --room {room_id} --from {speaks}{to}",
    ):
        click.echo(line)


@rooms.command()
@click.argument("room_id", metavar="ROOM")
@click.option(
    "--role",
    type=click.Choice(list(_ROLES)),
    required=True,
    help="What its holder may do; speakers may also listen.",
)
@click.option(
    "--for",
    "lifetime_s",
    metavar="TIME",
    callback=filters.lifetime_s,
    help="Its lifetime, such as 90s, 12h or 30d (default: a day).",
)
@host_token_option
@client_options("gateway")
@pass_options
def token(options: Options, room_id: str, role: str, lifetime_s: int, host_token: str) -> None:
    """Print a token with which others can join a room."""
    request = rooms_pb2.CreateJoinTokenRequest(
        room_id=room_id, host_token=host_token, role=_ROLES[role], lifetime_s=lifetime_s
    )
    with GatewayClient.opened(options) as client:
        made = client.create_join_token(request)
    if options.json:
        print_json(plain(made))
    else:
        click.echo(made.join_token)


@rooms.command("list")
@click.option("--tenant", metavar="ID", default="", help="Only rooms of this tenant.")
@limit_option
@client_options("gateway")
@pass_options
def list_rooms(options: Options, tenant: str, limit: int) -> None:
    """List rooms, newest first, with their members and languages."""
    with GatewayClient.opened(options) as client:
        found, more = client.list_rooms(tenant=tenant, limit=limit)
    if options.json:
        print_json({"rooms": [plain(room) for room in found], "more": more})
        return
    if found:
        click.echo(room_list(found))
    else:
        click.echo("no rooms match" if tenant else "there are no rooms")
    if more:
        click.echo("There may be more: --limit shows them.", err=True)


@rooms.command()
@click.argument("room_id", metavar="ROOM")
@room_token_option(whose="A token of the room; operators need none")
@limit_option
@client_options("gateway")
@pass_options
def show(options: Options, room_id: str, room_token: str, limit: int) -> None:
    """Show a room: speakers, languages and what waits in each, members."""
    members: list[rooms_pb2.Member] | None = None
    more = False
    with GatewayClient.opened(options) as client:
        room = client.get_room(room_id, room_token)
        try:
            members, more = client.list_members(room_id, room_token, limit=limit)
        except Failure as failure:
            # Listeners may see the room, but not who else is in it.
            if failure.reason != "PERMISSION_DENIED":
                raise
    if options.json:
        rows = None if members is None else [plain(each) for each in members]
        print_json({"room": plain(room), "members": rows, "more": more})
        return
    click.echo(room_page(room, members))
    if members is None:
        click.echo("Its members are shown to its host, to speakers and to operators.", err=True)
    elif more:
        click.echo("There may be more members: --limit shows them.", err=True)


@rooms.command()
@click.argument("room_id", metavar="ROOM")
@host_token_option
@client_options("gateway")
@pass_options
def close(options: Options, room_id: str, host_token: str) -> None:
    """Close a room: its members are told, and nobody can join again."""
    with GatewayClient.opened(options) as client:
        response = client.close_room(room_id, host_token)
    if options.json:
        print_json(plain(response))
    else:
        click.echo(f"Closed room {room_id}")
