"""A real Chromium, whose microphone hears a file over and over."""

import os
import shutil
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest
from playwright.sync_api import Browser, Playwright

from tests.browser.sounds import Sound

CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--use-fake-device-for-media-stream",
    # Several pages of a worker share the browser; none of them may be slowed down.
    "--disable-background-timer-throttling",
    "--disable-backgrounding-occluded-windows",
    "--disable-renderer-backgrounding",
)


def require_chromium() -> str:
    """Returns the path of Chromium. Skips the test if there is none."""
    found = shutil.which(CHROMIUM)
    if found is None:
        pytest.skip(
            f"needs Chromium, and {CHROMIUM} is not there: "
            "apt-get install --no-install-recommends chromium, or set CHROMIUM=path"
        )
    return found


class Browsers:
    """One browser for each sound that its microphone hears, because Chromium reads that at start.

    A context manager: at the end all browsers are closed.
    """

    def __init__(self, playwright: Playwright) -> None:
        self._playwright = playwright
        self._browsers: dict[Sound, Browser] = {}
        self._folder = tempfile.TemporaryDirectory(prefix="lingua-browser-")

    def hearing(self, sound: Sound) -> Browser:
        """Returns the browser that hears this, which is started if there is none yet."""
        if sound not in self._browsers:
            file = Path(self._folder.name) / f"{sound.name}.wav"
            file.write_bytes(sound.wav())
            self._browsers[sound] = self._playwright.chromium.launch(
                executable_path=require_chromium(),
                args=[*FLAGS, f"--use-file-for-fake-audio-capture={file}"],
            )
        return self._browsers[sound]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for browser in self._browsers.values():
            browser.close()
        self._folder.cleanup()
