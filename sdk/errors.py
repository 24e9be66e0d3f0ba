"""Every exception that the SDK raises on purpose."""

import re
from collections.abc import Iterable

_CAUSE = re.compile(r"[A-Z0-9_]{1,64}")


class SdkError(Exception):
    """The base of all SDK errors, except ValueError and TypeError for wrong arguments."""


class NodeRefusedError(SdkError):
    """A dispatcher refuses this node, and a retry cannot help.

    Args:
        reason: an ErrorReason of the contract without its prefix, such as UNAUTHENTICATED.
        message: the dispatcher's explanation.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message


class SessionError(SdkError):
    """The base of a session's errors.

    Args:
        reason: for tools: an ErrorReason of the contract without its prefix, or a name that the
            subclass lists.
        message: one sentence for people.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message


class SessionRefusedError(SessionError):
    """A gateway refuses this session, and a retry cannot help.

    Args:
        reason: such as UNAUTHENTICATED or INVALID_MESSAGE.
        message: the gateway's explanation.
        fields: for INVALID_MESSAGE: the path of each invalid field, and what is wrong with it.
    """

    def __init__(self, reason: str, message: str, fields: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__(reason, _with_fields(message, fields))
        self.fields = fields


class SessionUnavailableError(SessionError):
    """No gateway opened the session in time. Nothing has been sent.

    Args:
        reason: UNREACHABLE if no gateway answered; otherwise the last gateway's reason, such as
            SCHEDULER_DEPENDENCY_DOWN, or QUOTA_EXCEEDED if the tenant has reached its quota.
        message: one sentence for people.
        retry_after: seconds after which a retry may help; 0 if no server gave a time.
    """

    def __init__(self, reason: str, message: str, *, retry_after: float = 0.0) -> None:
        super().__init__(reason, message)
        self.retry_after = retry_after


class SessionLostError(SessionError):
    """The session cannot continue. Unacknowledged audio may be lost.

    Args:
        reason: an ErrorReason such as SESSION_NOT_FOUND or SCHEDULER_DEPENDENCY_DOWN; or
            UNREACHABLE: no gateway answered in time; CLOSED: the server closed it first;
            BROKEN_PROMISE: the server violated the contract; ABORTED: this side left it.
        message: one sentence for people.
        unacknowledged_chunks: how many chunks of audio were not acknowledged.
        unacknowledged_bytes: how many bytes of audio they have.
        results_seen: how many results and missing utterances had arrived.
    """

    def __init__(
        self,
        reason: str,
        message: str,
        *,
        unacknowledged_chunks: int = 0,
        unacknowledged_bytes: int = 0,
        results_seen: int = 0,
    ) -> None:
        super().__init__(
            reason,
            f"{message} ({unacknowledged_chunks} chunks of audio were not acknowledged,"
            f" {results_seen} results had arrived)",
        )
        self.unacknowledged_chunks = unacknowledged_chunks
        self.unacknowledged_bytes = unacknowledged_bytes
        self.results_seen = results_seen


class RoomError(SdkError):
    """The base of the errors of rooms and listeners. A speaker's session has those of a session.

    Args:
        reason: for tools: an ErrorReason of the contract without its prefix, or a name that the
            subclass lists.
        message: one sentence for people.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message


class RoomRefusedError(RoomError):
    """A gateway refuses what was asked of a room, and a retry cannot help.

    Args:
        reason: such as ROOM_NOT_FOUND, ROOM_CLOSED, ROOM_FULL or PERMISSION_DENIED.
        message: the gateway's explanation.
        fields: for INVALID_MESSAGE: the path of each invalid field, and what is wrong with it.
    """

    def __init__(self, reason: str, message: str, fields: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__(reason, _with_fields(message, fields))
        self.fields = fields


class RoomUnavailableError(RoomError):
    """No gateway answered in time. Later the same may succeed.

    Args:
        reason: UNREACHABLE if no gateway answered; otherwise the last gateway's reason, such as
            SCHEDULER_DEPENDENCY_DOWN, or QUOTA_EXCEEDED if the tenant has reached its quota.
        message: one sentence for people.
        retry_after: seconds after which a retry may help; 0 if no server gave a time.
    """

    def __init__(self, reason: str, message: str, *, retry_after: float = 0.0) -> None:
        super().__init__(reason, message)
        self.retry_after = retry_after


class ListenerLostError(RoomError):
    """A listener cannot continue. What is said from `position` on does not reach it.

    Args:
        reason: an ErrorReason such as ROOM_NOT_FOUND, PERMISSION_DENIED or ROOM_FULL; or
            UNREACHABLE: no gateway answered in time; BROKEN_PROMISE: the server violated the
            contract; ABORTED: this side dropped it.
        message: one sentence for people.
        position: the first room index that the listener has not seen.
    """

    def __init__(self, reason: str, message: str, *, position: int = 0) -> None:
        super().__init__(reason, f"{message} (seen are the utterances below {position})")
        self.position = position


def _with_fields(message: str, fields: tuple[tuple[str, str], ...]) -> str:
    """Returns the message with all invalid fields; some servers name them in it already."""
    named = [": ".join(field) for field in fields]
    return "; ".join([message, *(each for each in named if each not in message)])


class HeldTooLargeError(SdkError):
    """The audio of one turn exceeds what HeldAudio may keep."""


class JobError(SdkError):
    """Raised by a handler to say why its job failed.

    Args:
        cause: a name for tools such as MODEL_LOAD_FAILED, 1 to 64 characters of A-Z 0-9 _.
        detail: for people; cut at 200 characters.
        worth_retry: False if no other node would do better, for example with broken audio. The job
            fails if a second node says the same.
    """

    def __init__(self, cause: str, detail: str = "", *, worth_retry: bool = True) -> None:
        if not _CAUSE.fullmatch(cause):
            raise ValueError(f"cause: {cause!r} must be 1 to 64 characters of A-Z 0-9 _")
        super().__init__(cause, detail)
        self.cause = cause
        self.detail = detail
        self.worth_retry = worth_retry

    def __str__(self) -> str:
        return f"{self.cause}: {self.detail}" if self.detail else self.cause

    def __reduce__(self) -> tuple[object, ...]:
        # Pickling passes positional arguments only, and the error has to cross processes.
        return _job_error, (self.cause, self.detail, self.worth_retry)


def _job_error(cause: str, detail: str, worth_retry: bool) -> JobError:
    return JobError(cause, detail, worth_retry=worth_retry)


class HeldAudioMissingError(JobError):
    """HeldAudio no longer has the audio that the job needs, so the scheduler sends it again."""

    def __init__(self, missing: Iterable[int]) -> None:
        indexes = ", ".join(str(index) for index in sorted(missing))
        super().__init__("HELD_AUDIO_MISSING", f"the audio of utterances {indexes} is not held")
