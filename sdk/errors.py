"""Every exception that the SDK raises on purpose."""

import re
from collections.abc import Iterable

_CAUSE = re.compile(r"[A-Z0-9_]{1,64}")


class SdkError(Exception):
    """The root of them all, but for ValueError and TypeError on wrong arguments."""


class NodeRefusedError(SdkError):
    """A dispatcher will not have this node, and trying again would not help.

    Args:
        reason: as in the contract's ErrorReason without its prefix, such as UNAUTHENTICATED.
        message: what the dispatcher said.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message


class SessionError(SdkError):
    """The root of what can go wrong with a session.

    Args:
        reason: for tools: as in the contract's ErrorReason without its prefix, or a name that the
            subclass gives.
        message: one sentence for a person.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message


class SessionRefusedError(SessionError):
    """A gateway will not open this session, and trying again would not help.

    Args:
        reason: such as UNAUTHENTICATED or INVALID_MESSAGE.
        message: what the gateway said.
        fields: of INVALID_MESSAGE: pairs of a bad field's path and what is wrong with it.
    """

    def __init__(self, reason: str, message: str, fields: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__(reason, "; ".join([message, *(": ".join(field) for field in fields)]))
        self.fields = fields


class SessionUnavailableError(SessionError):
    """No gateway opened the session in time. Nothing has been sent.

    Args:
        reason: UNREACHABLE if no gateway answered; otherwise what the last one that did said, such
            as SCHEDULER_DEPENDENCY_DOWN, or QUOTA_EXCEEDED: the tenant has as much as it may have.
        message: one sentence for a person.
        retry_after: seconds after which another try may help; 0 where no server has said so.
    """

    def __init__(self, reason: str, message: str, *, retry_after: float = 0.0) -> None:
        super().__init__(reason, message)
        self.retry_after = retry_after


class SessionLostError(SessionError):
    """The session cannot go on. What was not acknowledged may be lost.

    Args:
        reason: of the contract, such as SESSION_NOT_FOUND or SCHEDULER_DEPENDENCY_DOWN; or
            UNREACHABLE: no gateway answered in time; CLOSED: the server closed it first;
            BROKEN_PROMISE: the server's answers make no sense; ABORTED: this side left it.
        message: one sentence for a person.
        unacknowledged_chunks: that were held when it was lost.
        unacknowledged_bytes: of audio in them.
        results_seen: results and missing ones that had come.
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
            f" {results_seen} results had come)",
        )
        self.unacknowledged_chunks = unacknowledged_chunks
        self.unacknowledged_bytes = unacknowledged_bytes
        self.results_seen = results_seen


class HeldTooLargeError(SdkError):
    """One turn's audio is more than HeldAudio may keep."""


class JobError(SdkError):
    """Raised by a handler: this job failed, and here is why.

    Args:
        cause: a name for tools such as MODEL_LOAD_FAILED, 1 to 64 characters of A-Z 0-9 _.
        detail: for people; 200 characters of it are kept.
        worth_retry: False if no other node would do better, such as for broken audio. The job
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
        # Exceptions are copied by their positional arguments; it has to come back from a process.
        return _job_error, (self.cause, self.detail, self.worth_retry)


def _job_error(cause: str, detail: str, worth_retry: bool) -> JobError:
    return JobError(cause, detail, worth_retry=worth_retry)


class HeldAudioMissingError(JobError):
    """HeldAudio does not have what this node held for the job: the scheduler sends it again."""

    def __init__(self, missing: Iterable[int]) -> None:
        indexes = ", ".join(str(index) for index in sorted(missing))
        super().__init__("HELD_AUDIO_MISSING", f"the audio of utterances {indexes} is not held")
