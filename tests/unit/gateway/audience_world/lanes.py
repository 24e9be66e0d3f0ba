"""The room in Redis, as far as its listeners are concerned."""

from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Said:
    """An outcome as it was read."""

    index: int
    previous: int | None
    with_audio: bool

    def silent(self) -> "Said":
        """The same without audio."""
        return replace(self, with_audio=False)


@dataclass
class ModelLane:
    """One language: utterances without an outcome, and outcomes."""

    open: list[int] = field(default_factory=list)
    published: list[int] = field(default_factory=list)
    # How many of those published are no longer kept.
    trimmed: int = 0

    def publish(self) -> None:
        """The first open utterance gets its outcome."""
        self.published.append(self.open.pop(0))

    def trim(self, keep: int) -> None:
        """Keeps only the last few outcomes."""
        self.trimmed = max(self.trimmed, len(self.published) - keep)

    def kept(self) -> list[int]:
        """Outcomes that can be read."""
        return self.published[self.trimmed :]

    def read(self, start: int, count: int, newest: bool, with_audio: bool) -> list[Said]:
        """As lua/read_spoken.lua."""
        found = [index for index in self.kept() if index >= start]
        found = found[-count:] if newest else found[:count]
        places = {index: at for at, index in enumerate(self.published)}
        return [
            Said(
                index,
                self.published[places[index] - 1] if places[index] else None,
                with_audio,
            )
            for index in found
        ]


class ModelRoom:
    """Numbers utterances, and enters them into the lanes that are wanted."""

    def __init__(self) -> None:
        self.next_index = 0
        self.lanes: dict[str, ModelLane] = {}

    def lane(self, language: str) -> ModelLane:
        """The lane of a language."""
        return self.lanes.setdefault(language, ModelLane())

    def say(self, languages: set[str]) -> None:
        """Somebody has spoken."""
        for language in languages:
            self.lane(language).open.append(self.next_index)
        self.next_index += 1
