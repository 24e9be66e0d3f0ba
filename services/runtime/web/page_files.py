"""The files of a page: which are served, and how.

All files are read once, at start. A request selects one of them by its whole path; no path of a
request is ever turned into a path of the file system.
"""

import hashlib
from collections.abc import Iterator, Mapping
from importlib.resources.abc import Traversable
from typing import NamedTuple

from aiohttp import web

# Files with other endings, such as notes on licences, are not served.
_TYPES = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
# Of every page: it is isolated from pages of others, and never taken for something else.
_HEADERS = {
    # A browser asks whether its copy is current, so a new version shows up at once.
    "Cache-Control": "no-cache",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class BrokenPageError(Exception):
    """The files are not there, because the installation is broken."""


class PageFile(NamedTuple):
    """A file as it is served."""

    body: bytes
    tag: str
    """The value of its ETag, without quotes: it changes with the body."""
    headers: Mapping[str, str]

    def response(self, request: web.BaseRequest) -> web.Response:
        """The file, or 304 if the client has it. aiohttp leaves out the body if it is for HEAD."""
        known = request.if_none_match or ()
        if any(each.value in (self.tag, "*") for each in known):
            return web.Response(status=304, headers=self.headers)
        return web.Response(body=self.body, headers=self.headers)


def read_page(folder: Traversable) -> dict[str, bytes]:
    """The files of a page by the path of the request: `/page/...`, and `/` for the index.

    Raises:
        BrokenPageError: they cannot be read.
    """
    try:
        found = dict(_read(folder, "/page"))
    except OSError as error:
        raise BrokenPageError(f"{error.strerror or error}: {folder}") from error
    index = found.pop("/page/index.html", b"")
    if not index:
        raise BrokenPageError(f"there is no index.html in {folder}")
    return {"/": index, **found}


def page_file(path: str, body: bytes, headers: Mapping[str, str]) -> PageFile:
    """A file as it is served.

    Args:
        path: of the request; its ending tells the type, and `/` is the index.
        body: the file.
        headers: besides those of every page, such as its content security policy.
    """
    tag = hashlib.sha256(body).hexdigest()[:32]
    kind = _TYPES[_ending(path) if path != "/" else "html"]
    own = {"Content-Type": kind, "ETag": f'"{tag}"'}
    return PageFile(body, tag, {**_HEADERS, **headers, **own})


def _read(folder: Traversable, path: str) -> Iterator[tuple[str, bytes]]:
    for each in folder.iterdir():
        name = f"{path}/{each.name}"
        if each.is_dir():
            yield from _read(each, name)
        elif _ending(name) in _TYPES and not each.name.startswith("."):
            yield name, each.read_bytes()


def _ending(path: str) -> str:
    return path.rpartition(".")[2]
