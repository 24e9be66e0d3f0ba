"""What the scripts of rooms share with those of sessions that speak to a room."""

from lingua_scheduler.services.runtime import errors
from lingua_scheduler.services.runtime.redis.cells.cells import Cell, Cells
from lingua_scheduler.services.runtime.settings.settings import Settings


def room_kept_ms(settings: Settings) -> int:
    """For how long a room without members is kept: longer than a gateway takes to renew it."""
    return max(settings.room_idle_ms, 2 * settings.room_lease_ms)


def due_ms(settings: Settings) -> int:
    """After which time an utterance without an outcome is missing, whoever should have put one.

    A gateway that resumes the speaker's session waits for as long again as the first one did.
    """
    return 2 * settings.result_deadline_ms


def cell_of_room(cells: Cells, room_id: str) -> Cell:
    """The cell of a room. Raises RoomNotFoundError if its id names none."""
    try:
        return cells.of_room(room_id)
    except errors.InvalidMessageError:
        raise room_refusal(room_id, b"ROOM_NOT_FOUND") from None


def room_key(cell: Cell, room_id: str) -> str:
    """The key of a room's record."""
    return f"{cell.prefix}:room:{room_id}"


def room_refusal(room_id: str, word: bytes) -> errors.LinguaError:
    """The error that the first word of a script's reply stands for."""
    match word:
        case b"ROOM_NOT_FOUND":
            return errors.RoomNotFoundError(
                f"there is no room {room_id!r}; it may have been empty for too long",
                metadata={"room_id": room_id},
            )
        case b"ROOM_CLOSED":
            return errors.RoomClosedError(
                f"room {room_id!r} was closed", metadata={"room_id": room_id}
            )
    return errors.InternalError(f"unexpected reply of a script: {word!r}")
