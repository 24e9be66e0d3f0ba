r"""Tutorials and how-tos run from top to bottom, as a reader types them, with real processes.

- A `bash` block is typed into the terminal that its title names, or that of the block before.
- A block whose title is the name of a file is saved in it. It replaces what was there.
- Any other `text` block is what the terminal then shows. A line `...` stands for any lines, and
  `...` in a line for anything. Ids, times, versions and the width of columns may differ
  (`VARYING`). `^C` and `^\` at its beginning are keys that the reader presses first.
- A command must end well, and show nothing else than its `text` block, if it has one. It may run on
  as long as nothing else is typed into its terminal.

Every port after `127.0.0.1:` on the page is replaced by a free one, and so are the defaults.
"""

import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lingua_scheduler.services.runtime.redis.embedded.binary import find_server
from lingua_scheduler.services.runtime.settings.settings import Settings
from tests.support.commands import environment
from tests.support.ports import free_port

from .blocks import ROOT, STORIES, Block, blocks_of, commands, pages, program
from .names import lingua_problems
from .terminal import KEYS, Terminal

PAGES = [
    page.relative_to(ROOT)
    for page in pages()
    if str(page.relative_to(ROOT).parent) in STORIES and any(blocks_of(page))
]
# Blocks with these are left out as a whole.
ELSEWHERE = {
    "source": "activates an environment; that of the tests is on the PATH",
    "pip": "installs the package; tools/try-install does that",
    "sudo": "installs Redis or runs systemd, as root; test_units_start_what_exists checks units",
    "promtool": "needs Prometheus; tests/monitoring checks the rules",
}
UNITS = [b for page in PAGES for b in blocks_of(ROOT / page) if b.language == "systemd"]
# What differs from run to run, and so may differ from the page.
VARYING = (
    r"\bunix:///\S+/redis\.sock\b",
    r"\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?: UTC|Z)?",
    r"\b\d\d:\d\d:\d\d[.,]\d{3}\b",
    r"\broom\.[\w.-]+",
    r"\b(?:[0-9a-f]{32}|[0-9a-f]{24}|[0-9a-f]{18})\b",
    # A duration.
    r"\b\d+(?:\.\d+)? ?(?:ms|s|m|h)\b",
    # A version.
    r"\b\d+\.\d+\.\d+(?:\.dev\d+)?\b(?!\.)",
    # The load of a node.
    r"\b[01]\.\d\d\b",
    r"[ \t]+",
)
# `lingua up` prints these only if ports are not the defaults.
HIDDEN = re.compile(r"  export LINGUA_(POOL|DISPATCHER|GATEWAY)_ADDRESS=")
DEFAULTS = {
    7710: ["LINGUA_POOL_LISTEN", "LINGUA_POOL_ADDRESS"],
    7720: ["LINGUA_DISPATCHER_LISTEN", "LINGUA_DISPATCHER_ADDRESS"],
    7730: ["LINGUA_GATEWAY_LISTEN", "LINGUA_GATEWAY_ADDRESS"],
    7740: ["LINGUA_GATEWAY_WEB_LISTEN"],
    7750: ["LINGUA_CONSOLE_LISTEN"],
    9710: ["LINGUA_POOL_METRICS_LISTEN"],
    9720: ["LINGUA_DISPATCHER_METRICS_LISTEN"],
    9730: ["LINGUA_GATEWAY_METRICS_LISTEN"],
    9750: ["LINGUA_CONSOLE_METRICS_LISTEN"],
}


class Story:
    """The reader of one page: a folder, terminals, and free ports for those of the page."""

    def __init__(self, page: Path, folder: Path) -> None:
        named = {int(port) for port in re.findall(r"127\.0\.0\.1:(\d{4})\b", page.read_text())}
        self._ports = different_ports({*named, *DEFAULTS})
        self._folder = folder / "reader"
        self._folder.mkdir()
        self._environ = {
            **environment(),
            **{
                name: f"127.0.0.1:{self._ports[port]}"
                for port, names in DEFAULTS.items()
                for name in names
            },
            "PATH": f"{Path(sys.executable).parent}:{programs(folder)}:{os.environ['PATH']}",
            "HOME": str(folder),
            # Readers wait 10 s for a lost node, and 3 s for the opinion of another one.
            "LINGUA_OTHER_NODES_WAIT_MS": "500",
            "LINGUA_NODE_RECONNECT_GRACE_MS": "1000",
            "LINGUA_LOG_FORMAT": "human",
        }
        self._terminals: dict[str, Terminal] = {}
        self._now = "Terminal 1"

    def follow(self, block: Block) -> None:
        """Does what the reader does at a block."""
        code = re.sub(r"\b\d{4}\b", lambda found: self._port(found[0]), block.code)
        if is_file(block):
            path = self._folder / block.title
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(code)
            return
        self._now = block.title or self._now
        if block.language == "bash":
            if not any(program(words) in ELSEWHERE for words in commands(block.code)):
                self._terminal.type(code)
            return
        assert block.language == "text", f"{block} is not saved, and nothing runs it"
        key, _, rest = code.partition("\n")
        if key in KEYS:
            self._terminal.press(key)
            code = rest
        if code:
            self._terminal.expect(code, pattern_of(code), more=code.endswith("...\n"))

    def finish(self) -> None:
        """Waits until all has ended, well: a page says how its reader ends what runs."""
        for terminal in self._terminals.values():
            terminal.finish()

    def close(self) -> None:
        for terminal in self._terminals.values():
            terminal.close()

    @property
    def _terminal(self) -> Terminal:
        if self._now not in self._terminals:
            self._terminals[self._now] = Terminal(self._folder, self._environ, HIDDEN)
        return self._terminals[self._now]

    def _port(self, number: str) -> str:
        return str(self._ports.get(int(number), number))


def different_ports(numbers: set[int]) -> dict[int, int]:
    """A free port for each number."""
    found: set[int] = set()
    while len(found) < len(numbers):
        found.add(free_port())
    return dict(zip(numbers, found, strict=True))


def is_file(block: Block) -> bool:
    """Whether the reader saves it."""
    return bool(block.title) and not block.title.startswith("Terminal ")


def programs(folder: Path) -> Path:
    """A folder with what the reader has installed besides the package: `redis-server`."""
    found = folder / "programs"
    found.mkdir()
    if shutil.which("redis-server") is None:
        (found / "redis-server").symlink_to(find_server().path)
    return found


def pattern_of(text: str) -> re.Pattern[str]:
    """What an output has to match to be that of the page."""
    return re.compile("".join(map(_pattern_of_line, text.splitlines())))


def _pattern_of_line(line: str) -> str:
    if line.strip() == "...":
        return r"(?:.*\n)*?"
    return _pattern_of_words(line.rstrip()) + r"[ \t]*\n"


def _pattern_of_words(words: str) -> str:
    for kind in (r"\.\.\.", *VARYING):
        if found := re.search(kind, words):
            before, after = words[: found.start()], words[found.end() :]
            middle = ".*" if found[0] == "..." else kind
            return _pattern_of_words(before) + middle + _pattern_of_words(after)
    return re.escape(words)


def run(story: Story, page: Path) -> None:
    """Follows a page from top to bottom."""
    for block in blocks_of(page):
        try:
            story.follow(block)
        except AssertionError as error:
            raise AssertionError(f"{page.name}:{block.line}: {error}") from error
    story.finish()


@pytest.fixture
def story(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Story]:
    found = Story(ROOT / request.param, tmp_path)
    try:
        yield found
    finally:
        found.close()


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("story", "page"), [(page, page) for page in PAGES], indirect=["story"], ids=map(str, PAGES)
)
def test_a_page_runs_from_top_to_bottom(story: Story, page: Path) -> None:
    run(story, ROOT / page)


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_file_of_a_page_is_used(page: Path) -> None:
    found = list(blocks_of(ROOT / page))
    saved = {block.title for block in found if is_file(block) and block.language != "systemd"}
    typed = "\n".join(block.code for block in found if block.language == "bash")
    imported = re.findall(r"^from (\w+) import", "\n".join(b.code for b in found), re.MULTILINE)
    used = {name for name in saved if name in typed or name.removesuffix(".py") in imported}
    assert saved == used


@pytest.mark.parametrize("unit", UNITS, ids=str)
def test_units_start_what_exists(unit: Block) -> None:
    service = dict(re.findall(r"^(\w+)=(.*)$", unit.code, re.MULTILINE))
    name, *words = shlex.split(service["ExecStart"])
    assert Path(name).is_absolute(), "systemd wants the path of a program"
    if Path(name).name == "lingua":
        assert lingua_problems(words) == []
    # systemd kills a process that has not drained by then.
    grace_s = Settings.model_fields["drain_grace_ms"].default / 1000
    assert int(service["TimeoutStopSec"]) > grace_s


# ---- that a page that does not run is found ----

BROKEN = {
    "false": "a good end",
    "true; false; true": "a good end",
    "echo one": "expected:\ntwo",
    "echo two; echo three": "expected:\ntwo",
    "echo two; exit 0": "a good end",
}


@pytest.mark.parametrize("typed", BROKEN)
def test_a_command_that_fails_or_shows_something_else_is_found(typed: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    shown = "" if "false" in typed else "```text\ntwo\n```\n"
    page.write_text(f"```bash\n{typed}\n```\n{shown}")
    reader = Story(page, tmp_path)
    try:
        with pytest.raises(AssertionError, match=re.escape(BROKEN[typed])):
            run(reader, page)
    finally:
        reader.close()


def test_only_what_varies_may_differ() -> None:
    pattern = pattern_of("#0  done 1.50s by ... at 127.0.0.1:7730\n...\nend\n")
    assert pattern.fullmatch("#0 done 12 ms by me at 127.0.0.1:7730\na\nb\nend\n")
    assert not pattern.fullmatch("#1 done 12 ms by me at 127.0.0.1:7730\nend\n")
    assert not pattern.fullmatch("#0 done 12 ms by me at 127.0.0.1:7731\nend\n")
    assert not pattern.fullmatch("#0 done 12 ms by me at 127.0.0.1:7730\n")
