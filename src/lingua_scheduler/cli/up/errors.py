"""Why a scheduler on this machine does not run."""


class PartFailedError(Exception):
    """A part of the scheduler did not start, or cannot stay up. `exit_code` is that of `up`."""

    def __init__(self, message: str, *, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class InterruptedStartError(Exception):
    """`interrupt` was called before all services were ready."""
