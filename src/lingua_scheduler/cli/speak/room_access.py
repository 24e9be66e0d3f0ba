"""Tokens of a room as options, and messages for those who are not let in.

The environment is the better place for them: other users of a machine can see options.
"""

from collections.abc import Callable
from typing import Any

import click

from lingua_scheduler.cli.failures import FAILED, NOT_FOUND, UNREACHABLE, USAGE, Failure
from lingua_scheduler.cli.options import Command
from lingua_scheduler.sdk import RoomError, SessionError

ROOM_VARIABLE = "LINGUA_ROOM_TOKEN"
HOST_VARIABLE = "LINGUA_HOST_TOKEN"

_UNREACHABLE_REASONS = ("UNREACHABLE", "SCHEDULER_DEPENDENCY_DOWN")


def room_token_option(
    *, whose: str = "A token of the room", required: bool = False
) -> Callable[[Command], Command]:
    """Add `--room-token`, for members."""
    return _token_option("--room-token", "room_token", ROOM_VARIABLE, whose, required)


def host_token_option(command: Command) -> Command:
    """Add `--host-token`."""
    whose = "The host's token; operators need none"
    return _token_option("--host-token", "host_token", HOST_VARIABLE, whose, False)(command)


def _token_option(
    flag: str, name: str, variable: str, whose: str, required: bool
) -> Callable[[Command], Command]:
    # An option with a default, even None, is never missing.
    given: dict[str, Any] = {"required": True} if required else {"default": ""}
    return click.option(
        flag,
        name,
        metavar="TOKEN",
        envvar=variable,
        show_envvar=True,
        help=f"{whose}. Other users of this machine can see options: the environment variable is "
        "safer.",
        **given,
    )


def not_let_in(
    error: RoomError | SessionError, *, room_id: str, role: str, address: str
) -> Failure:
    """The failure for a member that could not join its room, or could not stay in it.

    Args:
        error: of the SDK.
        room_id: the room.
        role: "speaker" or "listener".
        address: of the gateways.
    """
    code, message = FAILED, error.message
    if room_id not in message:
        message = f"room {room_id}: {message}"
    match error.reason:
        case "ROOM_NOT_FOUND":
            code = NOT_FOUND
            message += (
                ". A room is deleted when nobody was in it for a while; 'lingua rooms create' "
                "makes another one"
            )
        case "ROOM_CLOSED":
            message += ". Nobody can join it again; 'lingua rooms create' makes another one"
        case "ROOM_FULL":
            message += ". Somebody has to leave first"
            if "language" in error.message:
                message += ", or listen to a language that others listen to"
        case "PERMISSION_DENIED" | "UNAUTHENTICATED":
            code = USAGE
            message += (
                f". --room-token or {ROOM_VARIABLE} must be a token of this room; its host makes "
                f"one: 'lingua rooms token {room_id} --role {role}'"
            )
        case "INVALID_MESSAGE":
            code = USAGE
        case reason if reason in _UNREACHABLE_REASONS:
            code = UNREACHABLE
            message = (
                f"no answer for room {room_id} from {address}: {error.message}. --gateway or "
                "LINGUA_GATEWAY_ADDRESS sets the address, --timeout allows more time"
            )
    return Failure(message, reason=error.reason, exit_code=code)
