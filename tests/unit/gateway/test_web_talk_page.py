"""The table of the files of the talk page."""

from pathlib import Path

import pytest

from lingua_scheduler.services.runtime.errors import SettingsError
from lingua_scheduler.services.session_gateway.web import talk_page
from lingua_scheduler.services.session_gateway.web.talk_page import page_files

FOLDER = Path(talk_page.__file__).with_name("page")


def written(folder: Path, **texts: str) -> Path:
    for name, text in texts.items():
        path = folder / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_files_are_served_under_their_path_and_the_index_at_the_root(tmp_path: Path) -> None:
    folder = written(
        tmp_path, index_html="<p>", page_css="p {}", app__main_js="1;", icon_svg="<svg/>"
    )
    found = page_files(folder)
    assert {path: file.headers["Content-Type"] for path, file in found.items()} == {
        "/": "text/html; charset=utf-8",
        "/page/page.css": "text/css; charset=utf-8",
        "/page/app/main.js": "text/javascript; charset=utf-8",
        "/page/icon.svg": "image/svg+xml",
    }
    assert found["/page/app/main.js"].body == b"1;"


def test_notes_and_hidden_files_are_not_served(tmp_path: Path) -> None:
    folder = written(
        tmp_path, index_html="<p>", vendor__README_md="#", _hidden_js="1;", old_js_orig="1;"
    )
    assert (folder / ".hidden.js").is_file()
    assert list(page_files(folder)) == ["/"]


def test_a_tag_follows_the_content(tmp_path: Path) -> None:
    first = page_files(written(tmp_path, index_html="one", a_js="1;", b_js="1;"))
    second = page_files(written(tmp_path, index_html="two"))
    assert first["/"].tag != second["/"].tag
    assert first["/page/a.js"].tag == second["/page/a.js"].tag == first["/page/b.js"].tag
    assert first["/"].headers["ETag"] == f'"{first["/"].tag}"'


@pytest.mark.parametrize("texts", [{}, {"page_css": "p {}"}, {"index_html": ""}])
def test_without_an_index_there_is_no_page_and_the_error_says_what_to_do(
    tmp_path: Path, texts: dict[str, str]
) -> None:
    with pytest.raises(SettingsError, match=r"no index\.html in .*LINGUA_TALK_PAGE=no"):
        page_files(written(tmp_path, **texts))


def test_without_its_folder_there_is_no_page_and_the_error_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"No such file .*LINGUA_TALK_PAGE=no"):
        page_files(tmp_path / "page")


def test_every_file_of_the_page_is_served_or_a_note() -> None:
    served = {"/page/index.html", "/page/room.html", *page_files()} - {"/", "/room"}
    there = {f"/page/{path.relative_to(FOLDER)}" for path in FOLDER.rglob("*") if path.is_file()}
    notes = {path for path in there if path.endswith((".md", "LICENSE"))}
    assert there - notes == served
