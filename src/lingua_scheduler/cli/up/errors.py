"""Why a scheduler on this machine does not run."""


class PartFailedError(Exception):
    """A part of the scheduler did not start, or cannot stay up.

    Args:
        message: what was wrong.
        hint: what to do; a sentence.
        exit_code: that of `lingua up`.
    """

    def __init__(self, message: str, *, hint: str = "", exit_code: int = 1) -> None:
        super().__init__(f"{message}. {hint}" if hint else message)
        self.message = message
        self.hint = hint
        self.exit_code = exit_code


class InterruptedStartError(Exception):
    """`interrupt` was called before all services were ready."""
