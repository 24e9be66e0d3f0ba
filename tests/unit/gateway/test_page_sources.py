"""The files of the talk page: libraries are unchanged, its own modules are checked and short."""

import hashlib
import re
from importlib.resources import files
from pathlib import Path

PAGE = Path(str(files("lingua_scheduler.services.session_gateway.web") / "page"))
ROW = re.compile(r"^\| `(\S+)` \| .* \| \S+ \(`(\S+)`\) \| `([0-9a-f]{64})` \|$", re.MULTILINE)


def test_libraries_of_others_are_what_their_list_says() -> None:
    vendor = PAGE / "vendor"
    rows = ROW.findall((vendor / "README.md").read_text())
    assert sorted(name for name, _, _ in rows) == sorted(f.name for f in vendor.glob("*.js"))
    for name, licence, expected in rows:
        assert hashlib.sha256((vendor / name).read_bytes()).hexdigest() == expected, name
        assert (vendor / licence).stat().st_size > 500


def test_every_module_is_type_checked_and_short() -> None:
    modules = sorted((PAGE / "app").glob("*.js"))
    assert len(modules) > 10
    for module in modules:
        lines = module.read_text().splitlines()
        assert lines[0] == "// @ts-check", module.name
        assert len(lines) <= 400, module.name
    for sheet in PAGE.glob("*.css"):
        assert len(sheet.read_text().splitlines()) <= 400, sheet.name


def test_the_page_has_no_inline_code_or_style() -> None:
    page = (PAGE / "index.html").read_text()
    assert re.search(r"<script(?![^>]*\bsrc=)|<style|\bstyle=|\bon\w+=", page) is None
