"""The site is built without a warning, and loads nothing from elsewhere."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from .blocks import ROOT, pages

# Elements that a browser loads without being asked, and the attribute that says from where.
LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
# These do not make a browser load anything.
ONLY_NAMED = {"canonical", "next", "prev", "edit"}


class Loaded(HTMLParser):
    """The addresses from which a page loads something."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Notes the address of an element."""
        values = dict(attrs)
        address = values.get(LOADED.get(tag, ""))
        if address and values.get("rel") not in ONLY_NAMED:
            self.found.append(address)


def build(into: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(into)]
    return subprocess.run(
        [*command, *options], cwd=ROOT, capture_output=True, text=True, timeout=120
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    built = build(folder)
    assert built.returncode == 0, built.stderr
    return folder


def test_every_document_is_a_page(site: Path) -> None:
    names = (page.relative_to(ROOT).as_posix().removeprefix("docs/") for page in pages())
    expected = {name.replace("README.md", "index.md").replace(".md", ".html") for name in names}
    made = {page.relative_to(site).as_posix() for page in site.rglob("*.html")}
    assert expected - made == set()


def test_pages_load_only_files_of_the_site(site: Path) -> None:
    wrong = []
    for page in site.rglob("*.html"):
        text = page.read_text()
        for address in Loaded(text).found:
            to = urlsplit(address)
            # The page of an error may be shown at any address, so its own are absolute.
            folder = site if to.path.startswith("/") else page.parent
            is_there = (folder / unquote(to.path).lstrip("/")).is_file()
            if to.scheme != "data" and (to.scheme or to.netloc or not is_there):
                wrong.append(f"{page.name}: {address}")
        if 'class="mermaid"' in text and "assets/mermaid.js" not in text:
            wrong.append(f"{page.name}: the theme would load mermaid from elsewhere")
    for style in site.rglob("*.css"):
        wrong += [
            f"{style.name}: {url}"
            for url in re.findall(
                r"(?:url\(|@import )[\"']?(https?:[^\"')]+|//[^\"')]+)", style.read_text()
            )
        ]
    assert wrong == []


def test_links_of_the_home_page_lead_to_pages(site: Path) -> None:
    text = (site / "index.html").read_text()
    links = re.findall(r'href="([\w/.-]+)(?:#[\w-]*)?"', text)
    assert "running.html" in links
    assert "decisions.html" in links
    assert [link for link in links if not (site / link).exists()] == []


def test_decisions_are_listed(site: Path) -> None:
    text = (site / "decisions.html").read_text()
    for decision in (ROOT / "docs" / "decisions").glob("*.md"):
        assert f'href="decisions/{decision.stem}.html"' in text


def test_every_list_follows_an_empty_line() -> None:
    """GitHub sees a list without one; the site takes it for a part of the paragraph."""
    begins = re.compile(r"^(?!- |\d+\. |\s)(?:.+\n)+?(?=- |1\. )", re.MULTILINE)
    wrong = []
    for page in pages():
        text = re.sub(r"^( *)```.*?^\1```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
        for found in begins.finditer(text):
            before = text[: found.start()].rpartition("\n\n")[2]
            if not re.search(r"^(- |\d+\. )", before + found[0], re.MULTILINE):
                wrong.append(f"{page.relative_to(ROOT)}: {found[0].strip()[-60:]}")
    assert wrong == []


def test_mistakes_are_noticed(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "forgotten.md").write_text("# A page that is in no navigation\n")
    (docs / "running.md").write_text("# A\n\n[b](gone.md) [c](#gone) [d](forgotten.md#gone)\n")
    settings = tmp_path / "mkdocs.yml"
    settings.write_text(
        f"INHERIT: {ROOT / 'mkdocs.yml'}\n"
        f"docs_dir: {docs}\n"
        f"hooks: [{ROOT / 'tools/site/hooks.py'}]\n"
        "watch: []\n"
        "nav: [running.md]\n"
    )
    built = build(tmp_path / "site", "--config-file", str(settings))
    assert built.returncode != 0
    for mistake in ("forgotten.md", "'gone.md'", "'#gone'", "'forgotten.md#gone'"):
        assert mistake in built.stderr
