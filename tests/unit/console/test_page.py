"""The pages of the console: what they may do."""

import base64
import hashlib
from pathlib import Path

import pytest

from lingua_scheduler.services.console.http.page import page_files
from lingua_scheduler.services.runtime.errors import SettingsError

MAP = '{"imports": {"preact": "/page/vendor/preact.js"}}'


def test_the_import_map_is_the_only_inline_code_that_may_run(tmp_path: Path) -> None:
    html = f'<script type="importmap">{MAP}</script><script>alert(1)</script>'
    (tmp_path / "index.html").write_text(html)
    policy = page_files(tmp_path)["/"].headers["Content-Security-Policy"]
    digest = base64.b64encode(hashlib.sha256(MAP.encode()).digest()).decode()
    assert f"script-src 'self' 'sha256-{digest}';" in policy
    assert policy.count("sha256-") == 1
    assert "unsafe" not in policy


def test_a_page_without_an_import_map_runs_no_inline_code(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("<p>")
    (tmp_path / "app.js").write_text("1;")
    found = page_files(tmp_path)
    assert list(found) == ["/", "/page/app.js"]
    for file in found.values():
        policy = file.headers["Content-Security-Policy"]
        assert "default-src 'none'; script-src 'self'; style-src 'self';" in policy
        assert "frame-ancestors 'none'" in policy


def test_without_its_files_the_console_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="files of the console"):
        page_files(tmp_path)


def test_the_files_of_the_installed_console_are_there() -> None:
    assert page_files()["/"].body
