"""What a validator finds."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Violation:
    """A promise that was broken: which, to whom, and how."""

    rule: str
    who: str
    what: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.who}: {self.what}"
