"""How tests find the files that a page refers to; and that the talk page has all of its own."""

import pytest

from lingua_scheduler.services.session_gateway.web.talk_page import page_files
from tests.support.page_references import load_page, references

SERVER = "http://gateway"


@pytest.mark.parametrize(
    ("kind", "text", "found"),
    [
        (
            "text/html",
            '<script type="module" src="/page/app/main.js"></script>',
            {"/page/app/main.js"},
        ),
        ("text/html", '<link rel="icon"\n  href="page/icon.svg">', {"/page/icon.svg"}),
        ("text/html", '<a href="https://example.com">', set()),
        ("text/css", "a { background: url(x.svg) }", {"/x.svg"}),
        ("text/css", '@import "y.css";', {"/y.css"}),
        ("text/javascript", 'import { a } from "./a.js";', {"/a.js"}),
        ("text/javascript", 'import {\n  a,\n  b,\n} from "./a.js";\n', {"/a.js"}),
        (
            "text/javascript",
            'import{a as b}from"./a.js";import c from"./c.js";',
            {"/a.js", "/c.js"},
        ),
        ("text/javascript", '// Why.\nimport a from "./a.js";', {"/a.js"}),
        ("text/javascript", "import './side.js';", {"/side.js"}),
        ("text/javascript", 'export * from "./a.js";', {"/a.js"}),
        ("text/javascript", 'const late = await import("./late.js");', {"/late.js"}),
        ("text/javascript", 'new URL("./worklet.js", import.meta.url)', {"/worklet.js"}),
        ("text/javascript", '/**\n * @param {import("preact").A} a */', set()),
        ("text/javascript", '// import a from "./a.js"', set()),
        ("image/svg+xml", '<image href="x.png"/>', set()),
    ],
)
def test_references_are_found(kind: str, text: str, found: set[str]) -> None:
    assert references(f"{SERVER}/", kind, text) == {f"{SERVER}{path}" for path in found}


def test_what_a_browser_could_not_load_is_an_error() -> None:
    with pytest.raises(ValueError, match="'preact'"):
        references(f"{SERVER}/", "text/javascript", 'import { h } from "preact";')
    with pytest.raises(ValueError, match="on another server"):
        load_page(f"{SERVER}/", lambda _: ("text/html", '<script src="https://cdn.example/a.js">'))


def test_the_talk_page_has_every_file_that_it_refers_to() -> None:
    files = page_files()

    def fetch(address: str) -> tuple[str, str]:
        path = address.removeprefix(SERVER)
        assert path in files, f"the page refers to {path}, which is not served"
        return files[path].headers["Content-Type"], files[path].body.decode()

    assert "/" in load_page(f"{SERVER}/", fetch)
