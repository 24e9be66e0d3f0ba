"""What a download is: a package of a registry, and the files of it that are kept."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Archive:
    """A package of a registry."""

    registry: str
    package: str
    version: str
    file: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Whole:
    """A file that the registry has only in pieces, because it limits the size of a package.

    Attributes:
        name: of the whole file among the models.
        pieces: the names of the pieces among the models, in order. They are removed when the
            whole file is there.
        sha256: the checksum of the whole file.
    """

    name: str
    pieces: tuple[str, ...]
    sha256: str


@dataclass(frozen=True, slots=True)
class Part:
    """Files of an archive that belong together and have one licence.

    Attributes:
        files: the name in the archive, the name among the models, and the checksum.
        consent: the variable that must be "yes" before it is unpacked.
        terms: what the licence requires of users.
        whole: the file that one of `files` is a piece of.
    """

    what: str
    archive: Archive
    licence: str
    size: int
    files: tuple[tuple[str, str, str], ...]
    consent: str = ""
    terms: str = ""
    whole: Whole | None = None
