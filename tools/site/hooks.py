"""What MkDocs does for the site besides turning docs/ into pages.

- The documents of the repository's root (README.md, CHANGELOG.md ...) are pages too, from the same
  files: README.md is the home page. Links are changed to fit, so they work on both.
- Links to other files of the repository lead to `extra.repository`, or are no links if it is empty.
- decisions.md lists docs/decisions.
- Scripts that the theme would load from another host come from tools/site/fetched, if
  `tools/site/fetch` has put them there. Without them diagrams are shown as their source, and search
  needs a server.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
FETCHED = Path(__file__).parent / "fetched"
STYLE = Path(__file__).parent / "site.css"
DECISIONS = "decisions.md"
# Made from the code: there is nothing to edit.
GENERATED = re.compile(r"reference/.*|api\.md|" + re.escape(DECISIONS))

_CODE = re.compile(r"^( *)```.*?^\1```$|`[^`\n]+`", re.DOTALL | re.MULTILINE)
# Markdown's links and images, and those of HTML.
_LINK = re.compile(
    r"""\[(?P<text>[^\[\]]*)\]\((?P<to>[^)\s]+)\)|(?P<html>src|href)="(?P<file>[^"]+)\""""
)


def sources() -> dict[str, str]:
    """Pages that are made from files outside docs/, each with its file."""
    found = {page.name: page.name for page in sorted(ROOT.glob("*.md"))}
    return {"index.md" if name == "README.md" else name: name for name in found}


@event_priority(-100)  # after the plugin `offline`, which adds a script from another host
def on_config(config: MkDocsConfig) -> None:
    """Uses the scripts that were fetched, and no others."""
    worker = "assets/iframe-worker.js"
    config.extra["polyfills"] = [worker] if (FETCHED / "iframe-worker.js").exists() else []
    if (FETCHED / "mermaid.js").exists():
        config.extra_javascript = [*config.extra_javascript, "assets/mermaid.js"]
    else:
        fences = config.mdx_configs["pymdownx.superfences"]["custom_fences"]
        fences[:] = [fence for fence in fences if fence["name"] != "mermaid"]


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Adds the pages of the root, the list of decisions, the style and the scripts."""
    for page, source in sources().items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text()))
    files.append(File.generated(config, DECISIONS, content=decisions()))
    for added in (STYLE, *sorted(FETCHED.glob("*.js"))):
        files.append(File.generated(config, f"assets/{added.name}", abs_src_path=str(added)))


def decisions() -> str:
    """The page that lists docs/decisions."""
    lines = [
        "# Decisions",
        "",
        "Each decision that has a cost, in half a page: context, decision, consequences.",
        "",
    ]
    for path in sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md")):
        heading = re.match(r"# (\d+)\. (.+)", path.read_text())
        if heading is None:
            raise PluginError(f"{path.name} must begin with '# NUMBER. TITLE'")
        number, title = heading.groups()
        lines.append(f"- [{number}. {title}](decisions/{path.name})")
    return "\n".join(lines) + "\n"


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Changes links to what is elsewhere on the site, or not on it."""
    uri = page.file.src_uri
    source = sources().get(uri, f"docs/{uri}")
    code = [found.span() for found in _CODE.finditer(markdown)]

    def changed(link: re.Match[str]) -> str:
        at = link.end() - 1
        to, hash_, anchor = (link["to"] or link["file"]).partition("#")
        if not to or ":" in to or any(start <= at < end for start, end in code):
            return link[0]
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), to))
        address = address_of(target, uri, config.extra["repository"])
        if not address:
            return link["text"] or ""
        address += hash_ + anchor
        return f'{link["html"]}="{address}"' if link["html"] else f"[{link['text']}]({address})"

    return markdown if uri == DECISIONS else _LINK.sub(changed, markdown)


def address_of(target: str, uri: str, repository: str) -> str:
    """Where a file of the repository is, seen from a page; empty if nothing is known of that."""
    pages = {source: page for page, source in sources().items()}
    if target == "docs/decisions":
        target = f"docs/{DECISIONS}"
    if target in pages or target.startswith("docs/"):
        on_site = pages.get(target, target.removeprefix("docs/"))
        return posixpath.relpath(on_site, posixpath.dirname(uri) or ".")
    return f"{repository}/blob/main/{target}" if repository else ""


def on_page_context(context: dict[str, Any], page: Page, config: MkDocsConfig, nav: Any) -> None:
    """Sets the edit link."""
    uri, repository = page.file.src_uri, config.extra["repository"]
    source = sources().get(uri, f"docs/{uri}")
    is_generated = GENERATED.fullmatch(uri) is not None
    page.edit_url = None if is_generated or not repository else f"{repository}/edit/main/{source}"


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Names the dialog of the search for screen readers; the theme does not."""
    return output.replace(
        'data-md-component="search" role="dialog"',
        'data-md-component="search" role="dialog" aria-label="Search"',
    )
