"""Which files a page refers to, by its HTML and by the modules and style sheets that it loads."""

import re
from collections.abc import Callable
from urllib.parse import urljoin, urlsplit

_QUOTED = r"""["']([^"'\n]+)["']"""
_HTML = [re.compile(rf"""<(?:script|link|img|audio|iframe)\b[^>]*?\b(?:src|href)={_QUOTED}""")]
_CSS = [re.compile(rf"@import\s+{_QUOTED}"), re.compile(r"""url\(\s*["']?([^"')]+)["']?\s*\)""")]
# Comments on types import modules as well, which nobody loads.
_COMMENT = re.compile(r"/\*(?s:.*?)\*/|(?m:^\s*//.*$)")
_JS = [
    re.compile(rf"(?m)(?:^|;)\s*(?:import|export)\b[^;'\"()]*?\bfrom\s*{_QUOTED}"),
    re.compile(rf"(?m)(?:^|;)\s*import\s*{_QUOTED}"),
    re.compile(rf"\bimport\(\s*{_QUOTED}\s*\)"),
    re.compile(rf"new URL\(\s*{_QUOTED}\s*,\s*import\.meta\.url\s*\)"),
]
_PATTERNS = {"html": _HTML, "css": _CSS, "javascript": _JS}


def references(address: str, kind: str, text: str) -> set[str]:
    """The addresses that a file refers to.

    Args:
        address: of the file.
        kind: a part of its content type, such as "javascript".
        text: its content.

    Raises:
        ValueError: a module is imported by a bare name, which browsers cannot resolve.
    """
    found: set[str] = set()
    for name, patterns in _PATTERNS.items():
        if name not in kind:
            continue
        code = _COMMENT.sub("", text) if name == "javascript" else text
        for target in (match for pattern in patterns for match in pattern.findall(code)):
            if name == "javascript" and not target.startswith(("./", "../", "/")):
                # `new URL` and images need no dot, but modules do, and all of ours have it.
                raise ValueError(f"{address} refers to {target!r}: begin it with ./, ../ or /")
            found.add(urljoin(address, target).partition("#")[0])
    return found


def load_page(start: str, fetch: Callable[[str], tuple[str, str]]) -> set[str]:
    """Fetches a page and everything that it refers to, as a browser does.

    Args:
        start: the address of its HTML.
        fetch: returns the content type and the text at an address, or raises.

    Returns:
        The paths of all files.

    Raises:
        ValueError: something is on another server, or imported by a bare name.
    """
    waiting, seen = [start], {start}
    while waiting:
        address = waiting.pop()
        if urlsplit(address).netloc != urlsplit(start).netloc:
            raise ValueError(f"{address} is on another server than {start}")
        new = references(address, *fetch(address)) - seen
        seen |= new
        waiting.extend(new)
    return {urlsplit(address).path for address in seen}
