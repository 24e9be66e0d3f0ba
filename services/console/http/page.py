"""The pages of the console: their files, and what they may do in a browser."""

import base64
import hashlib
import re
from importlib.resources import files
from importlib.resources.abc import Traversable

from lingua_scheduler.services.runtime.errors import SettingsError
from lingua_scheduler.services.runtime.web.page_files import (
    BrokenPageError,
    PageFile,
    page_file,
    read_page,
)

_FOLDER = files("lingua_scheduler.services.console") / "page"
# The only code that may be inline: it says where the modules of libraries are.
_IMPORT_MAP = re.compile(rb"<script\s+type=\"importmap\"\s*>(.*?)</script>", re.DOTALL)

_Headers = dict[str, str]


def page_files(folder: Traversable = _FOLDER) -> dict[str, PageFile]:
    """Reads the files of the pages, by the path of the request; `/` is that of every view.

    Raises:
        SettingsError: they are not there, because the installation is broken.
    """
    try:
        found = read_page(folder)
    except BrokenPageError as error:
        raise SettingsError(
            f"the files of the console cannot be read: {error}; install lingua-scheduler again"
        ) from error
    headers = page_headers(found["/"])
    return {path: page_file(path, body, headers) for path, body in found.items()}


def page_headers(index: bytes) -> _Headers:
    """What the page may do: load everything from this server, and run no other inline code.

    Args:
        index: the HTML of the page, which may have import maps.
    """
    maps = "".join(f" '{_hash(each)}'" for each in _IMPORT_MAP.findall(index))
    return {
        "Content-Security-Policy": (
            f"default-src 'none'; script-src 'self'{maps}; style-src 'self'; "
            "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
            "frame-ancestors 'none'"
        ),
        "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
        "X-Frame-Options": "DENY",
    }


def _hash(script: bytes) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(script).digest()).decode()}"
